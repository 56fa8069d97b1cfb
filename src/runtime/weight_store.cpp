#include "runtime/weight_store.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "ir/text.h"
#include "ops/prim/reshape/op.h"
#include "runtime/plan.h"

namespace ebb {

StoredWeight stored_tensor(const Tensor& host) {
  return {.type = host.type(),
          .read =
              [host](int64_t at, std::span<uint8_t> out) {
                std::memcpy(out.data(), static_cast<const char*>(host.raw()) + at, out.size());
              },
          .host = host};
}

Graph WeightStore::as_stored(const Graph& g) const {
  Rewriter rw(g);
  for (const Source& s : g.sources()) {
    const Type& wanted = g.type(s.value);
    if (!holds(g, s)) {
      rw.set(s.value, rw.to().source(s.kind, s.name, wanted));
      continue;
    }
    const StoredWeight& w = weights_.find(s.name)->second;
    const AtScope at(rw.to(), s.name);
    const Value decoded = w.decode(rw.to().source(s.kind, s.name, w.type));
    require(decoded.type() == wanted, "weights: '", s.name, "' is stored as ", w.type,
            ", which is read as ", decoded.type(), "  the network has ", wanted);
    rw.set(s.value, decoded);
  }
  for (const Node& n : g.nodes()) rw.copy(n);
  rw.copy_ends();
  return rw.take();
}

bool WeightStore::holds(const Graph& g, const Source& s) const {
  return s.kind != Source::Kind::input && weights_.contains(s.name) &&
         std::ranges::find(g.updates(), s.name, &NamedValue::name) == g.updates().end();
}

// What is on the host already is no copy on a device that works there.
bool WeightStore::in_place(const std::string& name, const Device& device) const {
  return device.on_host() && weights_.find(name)->second.host.defined();
}

// ---- preparing -----------------------------------------------------------------------------

// Computes values of one prepare graph, expression after expression: a plan serves all values of
// one form, and the files' own tensors share one place on the device while they are read.
class WeightStore::Preparer {
 public:
  Preparer(WeightStore& store, const PreparedGraph& g, const Context& context, Values& values)
      : store_(store), g_(g), context_(context), values_(values) {}

  // Values that are computed come before those that are read as they are, and those that need the
  // most memory first: what is held at the end is then what most of them work in.
  void run() {
    for (const PreparedValue& v : g_.values) asked_.insert(v.key);
    for (const auto& [form, works] : forms()) prepare(works);
    for (const PreparedValue& v : g_.values)
      if (!values_.contains(v.key)) values_[v.key] = on_device(v.key, false);
  }

 private:
  struct Work {
    const PreparedValue* value;
    std::vector<std::string> sources;
  };

  // Computed values of one form each.
  std::vector<std::pair<std::string, std::vector<Work>>> forms() const {
    std::vector<std::pair<std::string, std::vector<Work>>> out;
    for (const Missing& m : store_.missing_computed(g_, &values_, *context_.device)) {
      Work w{m.value, {}};
      std::string form = to_text(expression_of(g_.prepare, m.value->value, w.sources));
      auto found = std::ranges::find(out, form, [](const auto& f) { return f.first; });
      if (found == out.end()) found = out.insert(found, {std::move(form), {}});
      found->second.push_back(std::move(w));
    }
    return out;
  }

  void prepare(const std::vector<Work>& works) {
    std::vector<std::string> sources;
    Graph g = expression_of(g_.prepare, works[0].value->value, sources);
    const Value out = g.take_output("value");
    const Type type = out.type();
    g.source(Source::Kind::state, "out", type);
    g.update("out", out);
    Plan plan(g, context_);
    for (const Work& w : works) {
      for (size_t i = 0; i < w.sources.size(); ++i)
        plan.bind(str("in.", i), on_device(w.sources[i], true));
      const Tensor result(type, take(type.bytes()));
      plan.bind("out", result);
      plan.load({});
      plan.enqueue();
      values_[w.value->key] = result;
      used_ = 0;
    }
    context_.device->synchronize();  // before the plan's memory goes
    scratch_.clear();
  }

  // A stored weight on the device: for good, or until the next value is prepared.
  Tensor on_device(const std::string& name, bool for_now) {
    const StoredWeight& w = store_.weights_.find(name)->second;
    if (const auto known = values_.find(name); known != values_.end()) return known->second;
    if (store_.in_place(name, *context_.device)) return w.host;
    const Tensor t(w.type, for_now ? scratch(w.type.bytes()) : take(w.type.bytes()));
    context_.device->fill(t, w.read);
    return t;
  }

  std::shared_ptr<Buffer> take(int64_t bytes) {
    try {
      return context_.device->allocate(bytes);
    } catch (const OutOfMemory&) {
      drop(values_, asked_);
      return context_.device->allocate(bytes);
    }
  }

  // The device works in order, so what is copied next waits for what reads it now.
  std::shared_ptr<Buffer> scratch(int64_t bytes) {
    if (used_ == scratch_.size()) scratch_.emplace_back();
    std::shared_ptr<Buffer>& place = scratch_[used_++];
    if (!place || place->bytes() < bytes) {
      context_.device->synchronize();
      place = nullptr;
      place = take(bytes);
    }
    return place;
  }

  WeightStore& store_;
  const PreparedGraph& g_;
  const Context& context_;
  Values& values_;
  std::set<std::string> asked_;
  std::vector<std::shared_ptr<Buffer>> scratch_;
  size_t used_ = 0;
};

std::vector<Tensor> WeightStore::get(const PreparedGraph& g, const Context& context) {
  const std::scoped_lock lock(mutex_);
  Values& values = on_device_[context.device];
  Preparer(*this, g, context, values).run();
  std::vector<Tensor> out;
  for (const PreparedValue& v : g.values) out.push_back(values.find(v.key)->second);
  return out;
}

int64_t WeightStore::missing_bytes(const PreparedGraph& g, const Device& device) const {
  const std::scoped_lock lock(mutex_);
  const Values* values = values_on(device);
  std::set<std::string_view> counted;
  int64_t bytes = 0;
  for (const PreparedValue& v : g.values) {
    if (values && values->contains(v.key)) continue;
    if (g.prepare.producer(v.value) < 0 && in_place(v.key, device)) continue;
    if (counted.insert(v.key).second) bytes += g.prepare.type(v.value).bytes();
  }
  return bytes;
}

namespace {

// What one value of a prepare graph is computed from, as expression_of() has it.
struct Expression {
  std::vector<const Source*> sources;
  int64_t between = 0;  // bytes of values between these and the result, at once; aliases are none
};

Expression expression_at(const Graph& g, int32_t value) {
  Expression out;
  std::set<int32_t> needed = {value};
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    if (std::ranges::none_of(n.out, [&](int32_t v) { return needed.contains(v); })) continue;
    needed.insert(n.in.begin(), n.in.end());
    if (n.op == &ops::def::reshape()) continue;
    int64_t live = 0;
    for (const int32_t v : n.in)
      if (g.producer(v) >= 0) live += g.type(v).bytes();
    for (const int32_t v : n.out)
      if (v != value) live += g.type(v).bytes();
    out.between = std::max(out.between, live);
  }
  for (const Source& s : g.sources())
    if (needed.contains(s.value)) out.sources.push_back(&s);
  return out;
}

}  // namespace

const WeightStore::Values* WeightStore::values_on(const Device& device) const {
  const auto found = std::ranges::find_if(
      on_device_, [&](const auto& entry) { return entry.first.get() == &device; });
  return found == on_device_.end() ? nullptr : &found->second;
}

std::vector<WeightStore::Missing> WeightStore::missing_computed(const PreparedGraph& g,
                                                                const Values* values,
                                                                const Device& device) const {
  std::vector<Missing> out;
  std::set<std::string_view> seen;
  for (const PreparedValue& v : g.values) {
    if (g.prepare.producer(v.value) < 0 || (values && values->contains(v.key))) continue;
    if (!seen.insert(v.key).second) continue;
    const Expression e = expression_at(g.prepare, v.value);
    Missing m{&v, e.between};
    for (const Source* s : e.sources)
      if (!in_place(s->name, device) && !(values && values->contains(s->name)))
        m.working += g.prepare.type(s->value).bytes();
    out.push_back(m);
  }
  std::ranges::stable_sort(out, std::greater(), &Missing::working);
  return out;
}

int64_t WeightStore::working_bytes(const PreparedGraph& g, const Device& device) const {
  int64_t to_come = missing_bytes(g, device), most = 0;
  const std::scoped_lock lock(mutex_);
  for (const Missing& m : missing_computed(g, values_on(device), device)) {
    to_come -= g.prepare.type(m.value->value).bytes();
    most = std::max(most, m.working - to_come);
  }
  return most;
}

// ---- what is held --------------------------------------------------------------------------

void WeightStore::drop(Values& values, const std::set<std::string>& kept) {
  std::erase_if(values, [&](const auto& v) {
    return v.second.buffer().use_count() == 1 && !kept.contains(v.first);
  });
}

int64_t WeightStore::held_bytes(const Device& device) const {
  const std::scoped_lock lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [held_by, values] : on_device_) {
    if (held_by.get() != &device) continue;
    for (const auto& [key, tensor] : values)
      if (!weights_.contains(key) || !in_place(key, device)) bytes += tensor.bytes();
  }
  return bytes;
}

void WeightStore::drop_unused() {
  const std::scoped_lock lock(mutex_);
  for (auto& [device, values] : on_device_) drop(values, {});
}

}  // namespace ebb
