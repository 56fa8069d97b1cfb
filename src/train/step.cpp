#include "train/step.h"

#include <algorithm>

#include "base/error.h"
#include "ops/clip_scale/op.h"
#include "ops/prim/all_gather/op.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/broadcast/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/sqrt/op.h"
#include "ops/square/op.h"
#include "passes/gradients.h"
#include "passes/precision/mixed_precision.h"
#include "passes/precision/narrow_states.h"

namespace ebb::train {
namespace {

constexpr double largest = 3.4e38;  // an f32 above it is infinite
constexpr std::string_view told_prefix = "told.";

Value scalar(Graph& g, std::string_view name) { return g.input(name, {DType::f32, {}}); }

// What the weights' updates share.
struct Shared {
  Value lr, clip, ema_decay;
  std::vector<Value> numbers, run, run_after;
};

// The loss and its gradients, f32, by trained weight. Those of weights that are split are of this
// rank's part and summed over all ranks.
struct Gradients {
  Graph graph;
  std::vector<std::string> params;
  std::vector<Value> grads;
  Value loss;
  Value share = {};         // with accumulation: of a micro-batch in its step
  std::vector<bool> split;  // by param
  std::vector<Type> whole;  // by param, of the weight
};

void add_gradients(Gradients& to, const Graph& loss, const StepOptions& o) {
  to.params = trained_params(loss);
  require(!to.params.empty(), "train: the loss has no parameters");
  for (const std::string& name : to.params) {
    const Type& type = loss.type(loss.find_source(name)->value);
    require(type.dtype == DType::f32, "train: parameters must be f32  ", name);
    to.split.push_back(is_split(type, o.split));
    to.whole.push_back(type);
  }
  to.graph = gradients(loss_of_rank(loss, o), "loss", to.params);
  if (o.split.sent != DType::f32) to.graph = send_sums_in(to.graph, o.split.sent);
  for (const std::string& name : to.params)
    to.grads.push_back(to.graph.take_output("grad." + name));
  to.loss = to.graph.take_output("loss");
}

// Adds each gradient to the sum of its step, which the state keeps for the next micro-batch where
// `kept`.
void accumulate(Gradients& to, bool kept) {
  Graph& g = to.graph;
  const Value first = scalar(g, "step.first"), share = to.share = scalar(g, "step.share");
  for (size_t i = 0; i < to.params.size(); ++i) {
    const std::string name = "acc." + to.params[i];
    const Value acc = g.source(Source::Kind::state, name, to.grads[i].type());
    to.grads[i] = ops::map({acc, to.grads[i], first, share},
                           [](auto x) { return select(x[2], 0.0, x[0]) + x[1] * x[3]; });
    if (kept) g.update(name, to.grads[i]);
  }
}

// All ranks' sums of the gradients that are not split.
void sum_over_ranks(Gradients& to, const Split& split) {
  for (size_t i = 0; i < to.grads.size(); ++i)
    if (!to.split[i]) to.grads[i] = sum_over_ranks(to.grads[i], split);
}

// The norm of all gradients, and what brings it down to max_norm. A part of a vector counts as much
// as a vector of its norm alone does.
ops::ClipScaleResults clip(const Gradients& of, const StepOptions& o) {
  if (o.split.ranks == 1) return ops::clip_scale(of.grads, {o.max_norm});
  const auto ranks = static_cast<double>(o.split.ranks);
  std::vector<Value> whole, parts;
  for (size_t i = 0; i < of.grads.size(); ++i) (of.split[i] ? parts : whole).push_back(of.grads[i]);
  if (!parts.empty()) {
    const Value norm = ops::clip_scale(parts, {}).norm;
    whole.push_back(ops::sqrt(ops::all_reduce(ops::square(norm), o.split.ranks)));
  }
  // gradients are sums over the ranks so far, and the loss is their mean
  const auto clip = ops::clip_scale(whole, {o.max_norm * ranks});
  const auto mean = [&](Value v) { return ops::map({v}, [&](auto x) { return x[0] / ranks; }); };
  return {mean(clip.scale), mean(clip.norm)};
}

// The mean loss of the step's micro-batches, of which the graph has the last.
Value loss_of_step(const Gradients& of) {
  if (!of.share) return of.loss;
  Graph& g = *of.loss.graph;
  return ops::map({of.loss, scalar(g, "step.earlier"), of.share},
                  [](auto x) { return (x[0] + x[1]) * x[2]; });
}

// The names of the outputs by which a loss tells something beside its value.
std::vector<std::string_view> told_by(const Graph& loss) {
  std::vector<std::string_view> out;
  for (const NamedValue& o : loss.outputs())
    if (o.name.starts_with(told_prefix)) out.push_back(o.name);
  return out;
}

// Of all ranks.
void average_told(Graph& g, const Graph& loss, int64_t ranks) {
  for (const std::string_view name : told_by(loss)) {
    const Value sum = ops::all_reduce(g.take_output(name), ranks);
    g.output(name, ops::map({sum}, [&](auto x) { return x[0] / static_cast<double>(ranks); }));
  }
}

// What all ranks tell: [ranks, RankReport::numbers].
Value reports(Graph& g, Value loss, int64_t ranks) {
  const Value told = g.input("step.report", {DType::f32, {1, RankReport::numbers - 1}});
  return ops::all_gather(ops::concat({ops::reshape(loss, {1, 1}), told}, 1), ranks);
}

// Kernels that were chosen by measurement may add up in another order on another rank: what decides
// how weights change is the same bits on all.
Value of_first_rank(Value v, int64_t ranks) { return ranks == 1 ? v : ops::broadcast(v, ranks); }

// 1 if all of it is finite, else 0: a loss that is not counts like a gradient that is not.
Value checked(Value scale, Value loss) {
  return ops::map({scale, loss},
                  [](auto x) { return select(less(abs(x[1]), largest), x[0], 0.0); });
}

Value is_positive(Value v) {
  return ops::map({v}, [](auto x) { return less(0.0, x[0]); });
}

Value rate_of(const std::string& name, Value lr, const StepOptions& o) {
  const auto factor = o.rates.find(name);
  if (factor == o.rates.end() || factor->second == 1) return lr;
  return ops::map({lr}, [&](auto x) { return x[0] * factor->second; });
}

UpdateInputs inputs_of(const Gradients& of, size_t param, const Shared& s, const StepOptions& o) {
  const std::string& name = of.params[param];
  Graph& g = *of.grads[param].graph;
  const Value p = g.find(name);
  const auto kept = [&](const std::string& state, const Type& whole) {
    return g.source(Source::Kind::state, state,
                    of.split[param] ? part_type(whole, o.split) : whole);
  };
  UpdateInputs in{.p = p, .g = of.grads[param], .states = {}, .lr = {}, .clip = s.clip};
  in.lr = rate_of(name, s.lr, o);
  in.numbers = s.numbers;
  in.run = s.run;
  for (const WeightState& w : states_of(find_optimizer(o.optimizer), name, of.whole[param]))
    in.states.push_back(kept(w.name, w.type));
  if (o.ema) {
    in.ema = kept("ema." + name, of.whole[param]);
    in.ema_decay = s.ema_decay;
  }
  in.settings = o.settings;
  if (o.undecayed.contains(name)) in.settings.weight_decay = 0;
  return in;
}

// f32[]
Value total(std::span<const Value> numbers) {
  Scalar sum = 0.0;
  for (size_t i = 0; i < numbers.size(); ++i) sum = sum + Scalar::input(static_cast<int64_t>(i));
  const Scalar results[] = {sum};
  const auto inputs = static_cast<int64_t>(numbers.size());
  return ops::pointwise(*numbers[0].graph, {Expr(inputs, results), {}, DType::f32}, numbers)[0];
}

// f32[] sums over all weights and ranks of what the optimiser's survey finds in each.
std::vector<Value> sums_of(const Gradients& of, const Survey& survey,
                           const std::vector<UpdateInputs>& weights, const Split& split) {
  std::vector<std::vector<Value>> whole, parts;  // by sum, by weight
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::vector<Value> found = survey.of_weight(weights[i]);
    auto& to = of.split[i] ? parts : whole;
    to.resize(found.size());
    for (size_t k = 0; k < found.size(); ++k) to[k].push_back(found[k]);
  }
  if (!parts.empty()) whole.resize(parts.size());
  std::vector<Value> out;
  for (size_t k = 0; k < whole.size(); ++k) {
    if (!parts.empty()) whole[k].push_back(ops::all_reduce(total(parts[k]), split.ranks));
    out.push_back(of_first_rank(total(whole[k]), split.ranks));
  }
  return out;
}

// Gives the updates what is kept of the run, before and behind this step.
void make_survey(Graph& g, const Gradients& of, std::vector<UpdateInputs>& weights, const Shared& s,
                 const StepOptions& o) {
  const Survey& survey = *find_optimizer(o.optimizer).survey;
  const std::vector<Value> after = survey.of_all({.run = s.run,
                                                  .sums = sums_of(of, survey, weights, o.split),
                                                  .numbers = s.numbers,
                                                  .lr = s.lr,
                                                  .clip = s.clip,
                                                  .settings = o.settings});
  for (size_t k = 0; k < after.size(); ++k) {
    const RunNumber& n = survey.kept[k];
    g.update(n.name, after[k]);
    if (!n.told.empty()) g.output(str(told_prefix, n.told), after[k]);
  }
  for (UpdateInputs& in : weights) in.run_after = after;
}

void update_params(Graph& g, const Gradients& of, Shared& s, const StepOptions& o) {
  const Optimizer& optimizer = find_optimizer(o.optimizer);
  if (optimizer.survey)
    for (const RunNumber& n : optimizer.survey->kept)
      s.run.push_back(g.source(Source::Kind::state, n.name, {DType::f32, {}}));
  std::vector<UpdateInputs> weights;
  for (size_t i = 0; i < of.params.size(); ++i) weights.push_back(inputs_of(of, i, s, o));
  if (optimizer.survey) make_survey(g, of, weights, s, o);
  for (size_t i = 0; i < of.params.size(); ++i) {
    const std::string& name = of.params[i];
    const Updated out = optimizer.update(weights[i]);
    g.update(name, out.p);
    const std::vector<WeightState> kept = states_of(optimizer, name, of.whole[i]);
    for (size_t k = 0; k < kept.size(); ++k)
      if (out.states[k].id != weights[i].states[k].id) g.update(kept[k].name, out.states[k]);
    if (o.ema) g.update("ema." + name, out.ema);
  }
}

}  // namespace

std::vector<std::string> trained_params(const Graph& g) {
  std::vector<std::string> out;
  for (const Source& s : g.sources())
    if (s.kind == Source::Kind::param) out.push_back(s.name);
  return out;
}

Graph loss_of_rank(const Graph& loss, const StepOptions& o) {
  return gather_parts(narrow_states(mixed_precision(loss, o.dtype), o.dtype), o.split);
}

Graph train_step(const Graph& loss, const StepOptions& o) {
  Gradients all;
  add_gradients(all, loss, o);
  Graph& g = all.graph;
  const AtScope at(g, "optimiser");
  if (o.accumulate) accumulate(all, false);
  const Value own = loss_of_step(all);
  if (o.accumulate) g.output("step_loss", own);
  Value total = own;  // finite if every rank's is
  if (o.split.ranks > 1) {
    sum_over_ranks(all, o.split);
    const Value told = reports(g, own, o.split.ranks);
    total = ops::reshape(ops::sum(ops::slice(told, 1, 0, 1), {0, 1}), {});
    g.output("ranks", told);
    average_told(g, loss, o.split.ranks);
  }
  const auto clipped = clip(all, o);
  Shared s{.lr = scalar(g, "step.lr")};
  for (const StepNumber& n : find_optimizer(o.optimizer).numbers)
    s.numbers.push_back(scalar(g, "step." + n.name));
  s.clip = of_first_rank(checked(clipped.scale, total), o.split.ranks);
  if (o.ema) s.ema_decay = scalar(g, "step.ema_decay");
  update_params(g, all, s, o);
  g.output("loss", all.loss);
  g.output("grad_norm", of_first_rank(clipped.norm, o.split.ranks));
  g.output("finite", is_positive(s.clip));
  verify(g, "train_step");
  return std::move(g);
}

Graph accumulation_step(const Graph& loss, const StepOptions& o) {
  Gradients all;
  add_gradients(all, loss, o);
  const AtScope at(all.graph, "optimiser");
  accumulate(all, true);
  for (const std::string_view name : told_by(loss)) all.graph.take_output(name);
  const Value scale = checked(ops::clip_scale(all.grads, {}).scale, all.loss);
  all.graph.output("loss", all.loss);
  all.graph.output("finite", is_positive(scale));
  verify(all.graph, "accumulation_step");
  return std::move(all.graph);
}

Reports read_reports(const NamedTensors& outputs) {
  const auto told = outputs.find("ranks");
  if (told == outputs.end()) {
    const auto whole = outputs.find("step_loss");
    return {.loss =
                (whole != outputs.end() ? whole : outputs.find("loss"))->second.span<float>()[0]};
  }
  const auto rows = told->second.span<float>();
  const auto at = [&](int64_t rank, int64_t number) {
    return double{rows[static_cast<size_t>(rank * RankReport::numbers + number)]};
  };
  Reports out{.slowest = 0};
  double fastest = at(0, 2);
  const int64_t ranks = told->second.shape()[0];
  for (int64_t r = 0; r < ranks; ++r) {
    out.loss += at(r, 0) / static_cast<double>(ranks);
    if (out.wish == 0) out.wish = at(r, 1);
    if (at(r, 2) > at(out.slowest, 2)) out.slowest = r;
    fastest = std::min(fastest, at(r, 2));
  }
  out.waiting = at(out.slowest, 2) - fastest;
  return out;
}

std::vector<NamedNumber> told_numbers(const NamedTensors& outputs, const Graph& loss,
                                      const StepOptions& o) {
  std::vector<NamedNumber> out;
  for (const std::string_view name : told_by(loss))
    out.push_back({name.substr(told_prefix.size()), outputs.find(name)->second.span<float>()[0]});
  const Optimizer& optimizer = find_optimizer(o.optimizer);
  if (!optimizer.survey) return out;
  for (const RunNumber& n : optimizer.survey->kept)
    if (!n.told.empty()) {
      const Tensor& kept = outputs.find(str(told_prefix, n.told))->second;
      out.push_back({n.told, n.value(o.settings, kept.span<float>()[0])});
    }
  return out;
}

NamedTensors step_inputs(const StepInputs& in, const StepOptions& o) {
  NamedTensors out;
  const auto set = [&](const std::string& name, double v) {
    out[name] = scalar_tensor(static_cast<float>(v));
  };
  set("step.lr", in.lr);
  for (const StepNumber& n : find_optimizer(o.optimizer).numbers)
    set("step." + n.name, n.at(o.settings, static_cast<double>(in.step + 1)));
  if (o.ema) set("step.ema_decay", in.ema_decay);
  if (o.split.ranks > 1)
    out["step.report"] = tensor_of(
        std::vector{static_cast<float>(in.report.wish), static_cast<float>(in.report.preparing)},
        {1, RankReport::numbers - 1});
  if (!o.accumulate) return out;
  set("step.first", in.micro_batch == 0);
  set("step.share", 1.0 / static_cast<double>(in.micro_batches));
  set("step.earlier", in.earlier);
  return out;
}

}  // namespace ebb::train
