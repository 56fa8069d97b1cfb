#include "runtime/weight_store.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "ir/text.h"
#include "passes/uses.h"
#include "runtime/plan.h"

namespace ebb {

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
  return s.kind != Source::Kind::input && weights_.contains(s.name) && !is_updated(g, s);
}

// What is on the host already is no copy on a device that works there.
bool WeightStore::in_place(const std::string& name, const Device& device) const {
  return device.on_host() && weights_.find(name)->second.host.defined();
}

// The same memory behind a buffer of its own, which is shared by what holds this tensor alone.
static Tensor counted(const Tensor& t) {
  class Part final : public Buffer {
   public:
    explicit Part(Tensor whole) : whole_(std::move(whole)) {}
    void* data() const override { return whole_.raw(); }
    int64_t bytes() const override { return whole_.bytes(); }
    bool on_host() const override { return whole_.buffer()->on_host(); }

   private:
    Tensor whole_;
  };
  return {t.type(), std::make_shared<Part>(t)};
}

// ---- preparing -----------------------------------------------------------------------------

// Computes values of one prepare graph, expression after expression: a plan serves all values of
// one form, and the files' own tensors share one place on the device while they are read.
class WeightStore::Preparer {
 public:
  Preparer(WeightStore& store, const PreparedGraph& g, const Context& context, OnDevice& on)
      : store_(store), g_(g), context_(context), values_(on.values), on_(on) {}

  // Values that are computed come before those that are read as they are, and those that need the
  // most memory first: what is held at the end is then what most of them work in.
  void run() {
    store_.drop_outdated(on_);
    for (const PreparedValue& v : g_.values) asked_.insert(v.key);
    const auto missing = store_.missing_computed(g_, &values_, *context_.device);
    prepare_changed(missing);
    for (const auto& [form, works] : forms(missing)) prepare(works);
    for (auto& [key, value] : begun_) values_[key] = {std::move(value), ""};
    for (const PreparedValue& v : g_.values) {
      if (g_.prepare.producer(v.value) >= 0) continue;
      const auto known = values_.find(v.key);
      if (known == values_.end() || known->second.changes != store_.changes_of(v.key))
        restore(v.key);
    }
  }

 private:
  // Where it ends the work, the device is done before the memory goes that it works in.
  void poll() {
    try {
      context_.poll();
    } catch (...) {
      context_.device->synchronize();
      if (on_.changed) on_.changed->finish();
      throw;
    }
  }

  // A part of a value.
  struct Work {
    const PreparedValue* value;
    ValuePart part;
    std::vector<std::string> sources;
  };
  using Forms = std::vector<std::pair<std::string, std::vector<Work>>>;

  // Parts of computed values, of one form each.
  Forms forms(const std::vector<Missing>& missing) const {
    Forms out;
    for (const Missing& m : missing) {
      if (!m.changes.empty()) continue;
      for (const ValuePart& part : parts_of(g_.prepare, m.value->value)) {
        Work w{m.value, part, {}};
        std::string form = to_text(expression_of(g_.prepare, part.value, w.sources));
        auto found = std::ranges::find(out, form, [](const auto& f) { return f.first; });
        if (found == out.end()) found = out.insert(found, {std::move(form), {}});
        found->second.push_back(std::move(w));
      }
    }
    return out;
  }

  void prepare(const std::vector<Work>& works) {
    std::vector<std::string> sources;
    Graph g = expression_of(g_.prepare, works[0].part.value, sources);
    const Value out = g.take_output("value");
    const Type type = out.type();
    g.source(Source::Kind::state, "out", type);
    g.update("out", out);
    Plan plan(g, context_);
    for (const Work& w : works) {
      poll();
      for (size_t i = 0; i < w.sources.size(); ++i)
        plan.bind(str("in.", i), on_device(w.sources[i]));
      const Tensor whole = begun(*w.value);
      const int64_t first = w.part.offset / size_of(type.dtype);
      plan.bind("out", whole.reshape({whole.numel()})
                           .rows(first, first + type.shape.numel())
                           .reshape(type.shape));
      plan.load({});
      plan.enqueue();
      forget(w.sources);
      used_ = 0;
    }
    context_.device->synchronize();  // before the plan's memory goes
    scratch_.clear();
  }

  // What was read on the host alone, and is read by no plan as it is, need not stay in memory.
  void forget(const std::vector<std::string>& sources) {
    for (const std::string& name : sources)
      if (store_.in_place(name, *context_.device) && !asked_.contains(name))
        store_.weights_.find(name)->second.forget();
  }

  // A value that is computed part by part: plans get it when all are there.
  Tensor begun(const PreparedValue& v) {
    auto known = begun_.find(v.key);
    if (known == begun_.end())
      known = begun_.emplace(v.key, place_of(v.key, g_.prepare.type(v.value))).first;
    return known->second;
  }

  void prepare_changed(const std::vector<Missing>& missing) {
    if (std::ranges::all_of(missing, [](const Missing& m) { return m.changes.empty(); })) return;
    if (!on_.changed) on_.changed = std::make_unique<ChangedWeights>(context_, store_.keep_);
    for (const Missing& m : missing) {
      if (m.changes.empty()) continue;
      poll();
      const PreparedExpression& recipe = store_.expression_for(g_, *m.value);
      std::vector<ChangedWeights::Source> sources;
      for (const std::string& name : recipe.sources) sources.push_back(store_.changed_source(name));
      const Tensor result = place_of(m.value->key, g_.prepare.type(m.value->value));
      on_.changed->compute(recipe, sources, result);
      forget(recipe.sources);
      values_[m.value->key] = {result, m.changes};
    }
    on_.changed->finish();
  }

  // The memory that plans have of a value, or else new one.
  Tensor place_of(const std::string& key, const Type& type) {
    const auto known = values_.find(key);
    if (known != values_.end() && !known->second.shared) return known->second.tensor;
    return {type, take(type.bytes())};
  }

  // A value that is a weight as it is stored.
  void restore(const std::string& name) {
    poll();
    const StoredWeight& w = store_.weights_.find(name)->second;
    const bool shared = store_.in_place(name, *context_.device);
    const Tensor t = shared ? counted(w.host) : place_of(name, w.type);
    if (!shared) context_.device->fill(t, w.read);
    values_[name] = {t, "", shared};
  }

  // A stored weight on the device, until the next value is prepared.
  Tensor on_device(const std::string& name) {
    const StoredWeight& w = store_.weights_.find(name)->second;
    const auto known = values_.find(name);
    if (known != values_.end() && known->second.changes.empty()) return known->second.tensor;
    if (store_.in_place(name, *context_.device)) return w.host;
    const Tensor t(w.type, scratch(w.type.bytes()));
    context_.device->fill(t, w.read);
    return t;
  }

  std::shared_ptr<Buffer> take(int64_t bytes) {
    try {
      return context_.allocate(bytes);
    } catch (const OutOfMemory&) {
      store_.drop(values_, asked_);
      if (on_.changed) on_.changed->drop();
      return context_.allocate(bytes);
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
  OnDevice& on_;
  std::set<std::string> asked_;
  std::map<std::string, Tensor> begun_;
  std::vector<std::shared_ptr<Buffer>> scratch_;
  size_t used_ = 0;
};

std::vector<Tensor> WeightStore::get(const PreparedGraph& g, const Context& context) {
  const std::scoped_lock lock(mutex_);
  OnDevice& on = on_device_[context.device];
  Preparer(*this, g, context, on).run();
  std::vector<Tensor> out;
  for (const PreparedValue& v : g.values) out.push_back(on.values.find(v.key)->second.tensor);
  return out;
}

std::map<std::string, int64_t> WeightStore::missing_values(const PreparedGraph& g,
                                                           const Values* values,
                                                           const Device& device) const {
  const auto changes = changes_by_value(g);
  std::map<std::string, int64_t> out;
  for (const PreparedValue& v : g.values) {
    const bool changed = !changes[static_cast<size_t>(v.value)].empty();
    const auto known = values ? values->find(v.key) : Values::const_iterator();
    if (values && known != values->end() && !(known->second.shared && changed)) continue;
    if (!changed && g.prepare.producer(v.value) < 0 && in_place(v.key, device)) continue;
    out.emplace(v.key, device.rounded(g.prepare.type(v.value).bytes()));
  }
  return out;
}

namespace {

int64_t sum_of(const std::map<std::string, int64_t>& bytes) {
  int64_t sum = 0;
  for (const auto& [key, n] : bytes) sum += n;
  return sum;
}

}  // namespace

int64_t WeightNeeds::bytes() const { return sum_of(values); }

WeightNeeds WeightStore::needs(const PreparedGraph& g, const Device& device) const {
  const std::scoped_lock lock(mutex_);
  const Values* values = values_on(device);
  return {this, missing_values(g, values, device), working_bytes(g, values, device)};
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
    if (n.op->renames) continue;
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

namespace {

// What is kept for a device, or null.
auto* find_on(auto& kept, const Device& device) {
  const auto found =
      std::ranges::find_if(kept, [&](const auto& entry) { return entry.first.get() == &device; });
  return found == kept.end() ? nullptr : &found->second;
}

}  // namespace

WeightStore::OnDevice* WeightStore::on(const Device& device) { return find_on(on_device_, device); }

const WeightStore::Values* WeightStore::values_on(const Device& device) const {
  const OnDevice* const here = find_on(on_device_, device);
  return here ? &here->values : nullptr;
}

std::vector<WeightStore::Missing> WeightStore::missing_computed(const PreparedGraph& g,
                                                                const Values* values,
                                                                const Device& device) const {
  const auto changes = changes_by_value(g);
  std::vector<int64_t> changing(changes.size());  // bytes that this takes, by value
  if (!change_texts_.empty()) {
    for (const Source& s : g.prepare.sources())
      changing[static_cast<size_t>(s.value)] =
          ChangedWeights::working_bytes(changed_source(s.name));
    for (const Node& n : g.prepare.nodes())
      for (const int32_t v : n.in)
        changing[static_cast<size_t>(n.out[0])] += changing[static_cast<size_t>(v)];
  }
  std::vector<Missing> out;
  std::set<std::string_view> seen;
  for (const PreparedValue& v : g.values) {
    const std::string& wanted = changes[static_cast<size_t>(v.value)];
    if (wanted.empty() && g.prepare.producer(v.value) < 0) continue;
    const auto known = values ? values->find(v.key) : Values::const_iterator();
    if (values && known != values->end() && known->second.changes == wanted) continue;
    if (!seen.insert(v.key).second) continue;
    Missing m{&v, wanted.empty() ? 0 : changing[static_cast<size_t>(v.value)], wanted};
    if (wanted.empty()) {
      for (const ValuePart& part : parts_of(g.prepare, v.value)) {
        const Expression e = expression_at(g.prepare, part.value);
        int64_t working = e.between;
        for (const Source* s : e.sources)
          if (!in_place(s->name, device) && !(values && values->contains(s->name)))
            working += g.prepare.type(s->value).bytes();
        m.working = std::max(m.working, working);
      }
    }
    out.push_back(std::move(m));
  }
  std::ranges::stable_sort(out, std::greater(), &Missing::working);
  return out;
}

int64_t WeightStore::working_bytes(const PreparedGraph& g, const Values* values,
                                   const Device& device) const {
  const std::map<std::string, int64_t> missing = missing_values(g, values, device);
  int64_t to_come = sum_of(missing), most = 0;
  for (const Missing& m : missing_computed(g, values, device)) {
    if (const auto v = missing.find(m.value->key); v != missing.end()) to_come -= v->second;
    most = std::max(most, m.working - to_come);
  }
  return most;
}

// ---- changes -------------------------------------------------------------------------------

void WeightStore::change(WeightChanges changes, bool keep) {
  std::map<std::string, std::string, std::less<>> texts;
  for (const auto& [weight, terms] : changes) {
    require(weights_.contains(weight), "weights: no weight '", weight, "' to change");
    std::string text;
    for (const WeightChange& c : terms) {
      text += str(c.name, '(', c.form);
      for (const float x : c.scalars) text += str(',', std::bit_cast<uint32_t>(x));
      text += ')';
    }
    if (!text.empty()) texts.emplace(weight, std::move(text));
  }
  const std::scoped_lock lock(mutex_);
  if (!keep || texts.empty()) ++keeps_;
  changes_ = std::move(changes);
  change_texts_ = std::move(texts);
  keep_ = keep;
  ++version_;
}

bool WeightStore::is_changed(std::string_view weight) const {
  const std::scoped_lock lock(mutex_);
  return change_texts_.contains(weight);
}

std::string_view WeightStore::changes_of(std::string_view weight) const {
  const auto found = change_texts_.find(weight);
  return found == change_texts_.end() ? std::string_view() : found->second;
}

std::vector<std::string> WeightStore::changes_by_value(const PreparedGraph& g) const {
  std::vector<std::string> out(static_cast<size_t>(g.prepare.values()));
  if (change_texts_.empty()) return out;
  for (const Source& s : g.prepare.sources())
    out[static_cast<size_t>(s.value)] = changes_of(s.name);
  for (const Node& n : g.prepare.nodes()) {
    std::string all;
    for (const int32_t v : n.in) all += out[static_cast<size_t>(v)];
    for (const int32_t v : n.out) out[static_cast<size_t>(v)] = all;
  }
  return out;
}

ChangedWeights::Source WeightStore::changed_source(const std::string& name) const {
  const auto terms = changes_.find(name);
  return {name, &weights_.find(name)->second, terms == changes_.end() ? nullptr : &terms->second};
}

const PreparedExpression& WeightStore::expression_for(const PreparedGraph& g,
                                                      const PreparedValue& v) {
  auto found = expressions_.find(v.key);
  if (found == expressions_.end()) {
    PreparedExpression e;
    e.graph = expression_of(g.prepare, v.value, e.sources);
    e.text = to_text(e.graph);
    found = expressions_.emplace(v.key, std::move(e)).first;
  }
  return found->second;
}

Tensor WeightStore::changed(const std::string& name, const Context& context) const {
  const auto found = weights_.find(name);
  require(found != weights_.end(), "weights: no weight '", name, "'");
  const std::scoped_lock lock(mutex_);
  const Type stored = found->second.type, wide{DType::f32, stored.shape};
  PreparedExpression as_it_is;
  as_it_is.graph.output("value", as_it_is.graph.source(Source::Kind::state, "in.0", stored));
  const Tensor result(wide, context.allocate(wide.bytes()));
  ChangedWeights work(context, false);
  work.compute(as_it_is, {changed_source(name)}, result);
  work.finish();
  const Tensor out(wide);
  context.device->copy(result, out);
  return out;
}

// ---- what is held --------------------------------------------------------------------------

void WeightStore::drop(Values& values, const std::set<std::string>& kept) const {
  std::erase_if(values, [&](const auto& v) {
    if (v.second.tensor.buffer().use_count() > 1 || kept.contains(v.first)) return false;
    if (v.second.shared) weights_.find(v.first)->second.forget();
    return true;
  });
}

int64_t WeightStore::held_bytes(const Device& device) const {
  const std::scoped_lock lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [held_by, on] : on_device_) {
    if (held_by.get() != &device) continue;
    for (const auto& [key, value] : on.values)
      if (!value.shared) bytes += value.tensor.bytes();
    if (on.changed) bytes += on.changed->held_bytes();
  }
  return bytes;
}

void WeightStore::drop_outdated(OnDevice& on) const {
  if (std::exchange(on.keeps, keeps_) != keeps_) on.changed = nullptr;
}

void WeightStore::drop_outdated(const Device& device) {
  const std::scoped_lock lock(mutex_);
  if (OnDevice* const here = on(device)) drop_outdated(*here);
}

void WeightStore::drop_unused(const Device& device) {
  const std::scoped_lock lock(mutex_);
  OnDevice* const here = on(device);
  if (!here) return;
  drop_outdated(*here);
  if (here->changed) here->changed->drop();  // whose plans have values, too
  drop(here->values, {});
}

}  // namespace ebb
