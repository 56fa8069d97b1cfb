#include "functions/library.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "functions/strided.h"

namespace ebb::functions {
namespace {

// What a prepared function depends on, as bytes.
class Key {
 public:
  Key(const Function& f, std::span<const TensorRef> in, std::span<const AttributeValue> values) {
    text_.reserve(512);  // one allocation for most
    put(&f);
    put(in.size());
    for (const TensorRef& t : in) {
      put(static_cast<uint8_t>(t.present ? static_cast<int>(t.dtype) : 0xff));
      if (!t.present) continue;
      put(static_cast<uint8_t>(t.sizes.size()));
      for (const int64_t n : t.sizes) put(n);
      for (const int64_t n : t.strides) put(n);
    }
    for (const AttributeValue& v : values) std::visit(*this, v);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(T v) { put(v); }
  void operator()(const std::string& v) {
    put(v.size());
    text_ += v;
  }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  void put(T v) {
    text_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  std::string text_;
};

void check_operands(const Function& f, std::span<const TensorRef> in) {
  const bool list = f.operands.back().kind == Operand::Kind::list;
  const size_t named = f.operands.size() - (list ? 1 : 0);
  require(list ? in.size() > named : in.size() == named, f.name, ": takes ", named, " operands",
          list ? " and a list" : "", " (got ", in.size(), ")");
  for (size_t i = 0; i < in.size(); ++i)
    require(in[i].present || (i < named && f.operands[i].kind == Operand::Kind::optional), f.name,
            ": operand ", i, " is missing");
}

}  // namespace

Prepared::Prepared(const Function& f, std::span<const TensorRef> in,
                   std::span<const AttributeValue> attributes, const Context& context)
    : device_(context.device), wants_copy_(in.size()) {
  check_operands(f, in);
  Graph g;
  std::vector<Value> values;
  bool empty = false;
  for (size_t i = 0; i < in.size(); ++i) {
    const TensorRef& t = in[i];
    values.emplace_back();
    if (!t.present) continue;
    present_.push_back(i);
    empty = empty || std::ranges::find(t.sizes, 0) != t.sizes.end();
    const auto view = StridedView::of(t.sizes, t.strides);
    wants_copy_[i] = !view;
    const std::string name = str("x", i);
    values.back() = view ? view->input(g, name, t.dtype)
                         : g.input(name, {t.dtype, Shape({t.sizes.begin(), t.sizes.end()})});
  }
  const std::vector<Value> results = f.build({g, values, f.attrs(attributes)});
  for (size_t k = 0; k < results.size(); ++k) {
    g.output(str("y", k), results[k]);
    results_.push_back(results[k].type());
  }
  if (!empty) function_ = std::make_unique<const CompiledFunction>(g, context);
}

void Prepared::run(std::span<void* const> operands, std::span<void* const> results, void* workspace,
                   void* stream) const {
  if (!function_) return;
  std::vector<void*> in;
  in.reserve(present_.size());
  for (const size_t i : present_) in.push_back(operands[i]);
  const auto run = [&] {
    device_->run_on(stream, [&] { function_->run({in, results, workspace}); });
  };
  if (loaded_.load(std::memory_order_acquire)) return run();
  device_->run_loading(run);
  loaded_.store(true, std::memory_order_release);
}

const Prepared& Library::prepare(const Function& f, std::span<const TensorRef> in,
                                 std::span<const AttributeValue> attributes) {
  const Key key(f, in, attributes);
  const auto known = [&]() -> const Prepared* {
    const std::shared_lock lock(mutex_);
    const auto it = prepared_.find(key.text());
    return it == prepared_.end() ? nullptr : it->second.get();
  };
  if (const Prepared* p = known()) return *p;
  const std::lock_guard one(making_);
  if (const Prepared* p = known()) return *p;  // by another thread meanwhile
  std::unique_ptr<const Prepared> made;
  context_.device->run_loading(
      [&] { made = std::make_unique<const Prepared>(f, in, attributes, context_); });
  const std::unique_lock lock(mutex_);
  return *prepared_.try_emplace(key.text(), std::move(made)).first->second;
}

}  // namespace ebb::functions
