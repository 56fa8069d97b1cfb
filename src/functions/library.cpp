#include "functions/library.h"

#include <functional>

#include "base/error.h"
#include "functions/strided.h"

namespace ebb::functions {
namespace {

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

Key::Key(const Function& f, std::span<const TensorRef> in, const Attributes& attributes) {
  put(reinterpret_cast<uintptr_t>(&f));
  put(in.size());
  for (const TensorRef& t : in) {
    constexpr uint64_t absent = ~uint64_t{0}, ranks = 1 << 16;
    put(t.present ? static_cast<uint64_t>(t.dtype) * ranks + t.sizes.size() : absent);
    for (const int64_t n : t.sizes) put(static_cast<uint64_t>(n));
    for (const int64_t n : t.strides) put(static_cast<uint64_t>(n));
  }
  for (const uint64_t w : attributes.words) put(w);
}

Prepared::Prepared(const Function& f, std::span<const TensorRef> in, const Attributes& attributes,
                   const Context& context)
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
    const auto view = StorageView::of(t.sizes, t.strides);
    wants_copy_[i] = !view;
    const std::string name = str("x", i);
    values.back() = view ? view->input(g, name, t.dtype)
                         : g.input(name, {t.dtype, Shape({t.sizes.begin(), t.sizes.end()})});
  }
  const std::vector<Value> results = f.build({g, values, f.attrs(attributes.values)});
  for (size_t k = 0; k < results.size(); ++k) {
    g.output(str("y", k), results[k]);
    results_.push_back(results[k].type());
  }
  if (!empty) function_ = std::make_unique<const CompiledFunction>(g, context);
}

void Prepared::run(std::span<void* const> operands, std::span<void* const> results, void* workspace,
                   void* stream) const {
  if (!function_) return;
  InlineVector<void*, 16> present;
  for (const size_t i : present_) present.push_back(operands[i]);
  const std::span<void* const> in = present;
  const auto enqueue = [&] { function_->run({in, results, workspace}); };
  const auto run = [&] { device_->run_on(stream, std::cref(enqueue)); };
  if (loaded_.load(std::memory_order_acquire)) return run();
  device_->run_loading(std::cref(run));
  loaded_.store(true, std::memory_order_release);
}

std::shared_ptr<const Prepared> Library::known(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto it = prepared_.find(key);
  if (it == prepared_.end()) return nullptr;
  it->second.used = ++uses_;
  return it->second.prepared;
}

// Of those that may go, if there are too many; with the lock held.
std::shared_ptr<const Prepared> Library::took_out_oldest() {
  auto oldest = prepared_.end();
  size_t counted = 0;
  for (auto it = prepared_.begin(); it != prepared_.end(); ++it) {
    const bool in_use = it->second.prepared.use_count() > 1;
    std::atomic_thread_fence(std::memory_order_acquire);  // behind the last use
    if (it->second.prepared->recorded()) continue;
    ++counted;
    if (in_use) continue;
    if (oldest == prepared_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  if (counted <= most_ || oldest == prepared_.end()) return nullptr;
  return prepared_.extract(oldest).mapped().prepared;
}

std::shared_ptr<const Prepared> Library::prepare(const Function& f, std::span<const TensorRef> in,
                                                 const Attributes& attributes) {
  const Key key(f, in, attributes);
  if (auto p = known(key)) return p;
  const std::lock_guard one(making_);
  if (auto p = known(key)) return p;  // by another thread meanwhile
  std::shared_ptr<const Prepared> made;
  std::vector<std::shared_ptr<const Prepared>> old;
  const auto make = [&] {
    made = std::make_shared<const Prepared>(f, in, attributes, context_);
    const std::lock_guard lock(mutex_);
    prepared_.try_emplace(key, Entry{made, ++uses_});
    while (auto p = took_out_oldest()) old.push_back(std::move(p));
  };
  context_.device->run_loading(std::cref(make));
  return made;  // what is old is freed while no call waits
}

size_t Library::kept() const {
  const std::lock_guard lock(mutex_);
  return prepared_.size();
}

}  // namespace ebb::functions
