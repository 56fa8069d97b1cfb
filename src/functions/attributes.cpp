#include "functions/attributes.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"

namespace ebb::functions {
namespace {

struct PutWords {
  std::vector<uint64_t>& words;
  void operator()(int64_t v) const { words.push_back(static_cast<uint64_t>(v)); }
  void operator()(double v) const { words.push_back(std::bit_cast<uint64_t>(v)); }
  void operator()(bool v) const { words.push_back(v ? 1 : 0); }
  void operator()(const std::string& v) const {
    words.push_back(v.size());
    for (size_t at = 0; at < v.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, v.data() + at, std::min(sizeof word, v.size() - at));
      words.push_back(word);
    }
  }
};

struct Numbered {
  const Function* function;
  Attributes attributes;
};

struct Table {
  std::mutex adding;
  std::array<std::unique_ptr<const Numbered>, most_numbered> all;
  std::atomic<int64_t> count = 0;
};

Table& table() {
  static Table t;
  return t;
}

}  // namespace

Attributes::Attributes(std::vector<AttributeValue> v) : values(std::move(v)) {
  for (const AttributeValue& value : values) std::visit(PutWords{words}, value);
}

int64_t number_of(const Function& f, Attributes attributes) {
  require(attributes.values.size() == f.attributes.size(), f.name, ": ", f.attributes.size(),
          " attributes (got ", attributes.values.size(), ")");
  for (size_t i = 0; i < f.attributes.size(); ++i)
    require(attributes.values[i].index() == f.attributes[i].value.index(), f.name, ": attribute '",
            f.attributes[i].name, "' is of another type");
  Table& t = table();
  const std::lock_guard lock(t.adding);
  const int64_t count = t.count.load(std::memory_order_relaxed);
  for (int64_t i = 0; i < count; ++i) {
    const Numbered& n = *t.all[static_cast<size_t>(i)];
    if (n.function == &f && n.attributes.words == attributes.words) return i;
  }
  if (count == most_numbered) return -1;
  t.all[static_cast<size_t>(count)] =
      std::make_unique<const Numbered>(Numbered{&f, std::move(attributes)});
  t.count.store(count + 1, std::memory_order_release);
  return count;
}

const Attributes& attributes_of(const Function& f, int64_t number) {
  const Table& t = table();
  const int64_t count = t.count.load(std::memory_order_acquire);
  require(number >= 0 && number < count, f.name, ": there are no attributes ", number, ", only ",
          count);
  const Numbered& n = *t.all[static_cast<size_t>(number)];
  require(n.function == &f, f.name, ": attributes ", number, " are those of ", n.function->name);
  return n.attributes;
}

}  // namespace ebb::functions
