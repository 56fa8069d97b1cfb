#include "runtime/weight_change.h"

#include <cstring>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
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

namespace {

Type in_f32(const Type& type) { return {DType::f32, type.shape}; }

// `expression` of sources that are f32 in place of what they are stored as, rounded at its end.
Graph of_wide_sources(const Graph& expression) {
  Rewriter rw(expression);
  for (const Source& s : expression.sources())
    rw.set(s.value, rw.to().source(s.kind, s.name, in_f32(expression.type(s.value))));
  for (const Node& n : expression.nodes()) rw.copy(n);
  const int32_t value = expression.outputs()[0].value;
  const Type type = expression.type(value);
  const Value out = ops::cast(rw.map(value), type.dtype);
  rw.to().source(Source::Kind::state, "out", type);
  rw.to().update("out", out);
  return rw.take();
}

Graph widening(const Type& stored) {
  Graph g;
  const Value w = g.source(Source::Kind::state, "weight", stored);
  g.source(Source::Kind::state, "sum", in_f32(stored));
  g.update("sum", ops::cast(w, DType::f32));
  return g;
}

std::string factor_name(size_t k) { return str("factor.", k); }

Graph term(const WeightChange& c, const Type& weight) {
  Graph g;
  const auto source = [&](const std::string& name, const Type& type) {
    return g.source(Source::Kind::state, name, type);
  };
  WeightChange::Operands in{.sum = source("sum", in_f32(weight))};
  if (c.reads_weight) in.weight = ops::cast(source("weight", weight), DType::f32);
  for (size_t k = 0; k < c.factors.size(); ++k)
    in.factors.push_back(source(factor_name(k), c.factors[k].type));
  in.scalars = g.input("scalars", {DType::f32, {WeightChange::scalar_count}});
  const Value out = c.apply(in);
  require(out.type() == in_f32(weight), c.name, ": its change has another shape than the weight  ",
          out.type(), "  ", weight);
  g.update("sum", out);
  return g;
}

std::string term_key(const WeightChange& c, const Type& weight) {
  std::string key = str("term ", c.form, ' ', weight);
  for (const StoredWeight& f : c.factors) key += str(' ', f.type);
  return key;
}

}  // namespace

// Those compiled so far.
class ChangedWeights::Plans {
 public:
  Plan& of(const std::string& key, const std::function<Graph()>& graph, const Context& context) {
    auto found = plans_.find(key);
    if (found == plans_.end())
      found = plans_.emplace(key, std::make_unique<Plan>(graph(), context)).first;
    return *found->second;
  }
  int64_t bytes() const {
    int64_t out = 0;
    for (const auto& [key, plan] : plans_) out += plan->arena_bytes();
    return out;
  }

 private:
  std::map<std::string, std::unique_ptr<Plan>> plans_;
};

ChangedWeights::ChangedWeights(Context context, bool keep)
    : context_(std::move(context)), keep_(keep) {
  context_.poll = [] {};  // what was begun is finished: it is small
}
ChangedWeights::~ChangedWeights() = default;

namespace {

void run(Plan& plan, const NamedTensors& inputs = {}) {
  plan.load(inputs);
  plan.enqueue();
}

}  // namespace

Tensor ChangedWeights::stored(const std::string& name, const StoredWeight& w) {
  Device& device = *context_.device;
  if (device.on_host() && w.host.defined()) return w.host;
  if (const auto it = held_.find(name); it != held_.end()) return it->second;
  const Tensor t = keep_ ? Tensor(w.type, context_.allocate(w.type.bytes())) : scratch(w.type);
  device.fill(t, w.read);
  if (keep_) held_.emplace(name, t);
  return t;
}

// The device works in order, so what is written next waits for what reads it now.
Tensor ChangedWeights::scratch(const Type& type) {
  if (used_ == scratch_.size()) scratch_.emplace_back();
  std::shared_ptr<Buffer>& place = scratch_[used_++];
  if (!place || place->bytes() < type.bytes()) {
    context_.device->synchronize();
    place = nullptr;
    place = context_.allocate(type.bytes());
  }
  return {type, place};
}

void ChangedWeights::widen(const Tensor& stored, const Tensor& sum) {
  Plan& plan = plans_->of(
      str("widen ", stored.type()), [&] { return widening(stored.type()); }, context_);
  plan.bind("weight", stored);
  plan.bind("sum", sum);
  run(plan);
}

void ChangedWeights::apply(const WeightChange& c, const Tensor& weight, const Tensor& sum) {
  Plan& plan = plans_->of(
      term_key(c, weight.type()), [&] { return term(c, weight.type()); }, context_);
  const Tensor scalars = tensor_of(std::span<const float>(c.scalars), {WeightChange::scalar_count});
  NamedTensors inputs;
  for (const ebb::Source& s : plan.graph().sources()) {  // those that the term reads
    if (s.name == "sum") plan.bind(s.name, sum);
    if (s.name == "weight") plan.bind(s.name, weight);
    if (s.name == "scalars") inputs.emplace(s.name, scalars);
    for (size_t k = 0; k < c.factors.size(); ++k)
      if (s.name == factor_name(k)) plan.bind(s.name, stored(str(c.name, '#', k), c.factors[k]));
  }
  run(plan, inputs);
}

Tensor ChangedWeights::changed(const Source& source, const Tensor& sum) {
  const Tensor weight = stored(source.name, *source.weight);
  widen(weight, sum);
  if (source.changes)
    for (const WeightChange& c : *source.changes) apply(c, weight, sum);
  return sum;
}

void ChangedWeights::compute(const PreparedExpression& e, const std::vector<Source>& sources,
                             const Tensor& result) {
  if (!plans_) plans_ = std::make_unique<Plans>();
  used_ = 0;
  if (e.graph.nodes().empty() && result.dtype() == DType::f32) {
    changed(sources.at(0), result.reshape(sources[0].weight->type.shape));
    return;
  }
  std::vector<Tensor> sums;
  for (const Source& s : sources) sums.push_back(changed(s, scratch(in_f32(s.weight->type))));
  Plan& plan = plans_->of(
      str("finish ", e.text), [&] { return of_wide_sources(e.graph); }, context_);
  for (size_t k = 0; k < sums.size(); ++k) plan.bind(str("in.", k), sums[k]);
  plan.bind("out", result);
  run(plan);
}

void ChangedWeights::finish() {
  context_.device->synchronize();
  scratch_.clear();
  if (!keep_) plans_ = nullptr;
}

void ChangedWeights::drop() {
  finish();
  held_.clear();
  plans_ = nullptr;
}

int64_t ChangedWeights::held_bytes() const {
  int64_t bytes = plans_ ? plans_->bytes() : 0;
  for (const auto& [name, tensor] : held_) bytes += tensor.bytes();
  return bytes;
}

int64_t ChangedWeights::working_bytes(const Source& s) {
  int64_t bytes = s.weight->type.bytes() + in_f32(s.weight->type).bytes();
  if (s.changes)
    for (const WeightChange& c : *s.changes)
      for (const StoredWeight& f : c.factors) bytes += f.type.bytes();
  return bytes;
}

}  // namespace ebb
