#include "train/state.h"

#include <set>

#include "base/error.h"
#include "nn/network.h"
#include "passes/precision/quantise_states.h"
#include "train/model_weights.h"

namespace ebb::train {
namespace {

// Whether the state comes to the host of this rank: to that of the one that writes it.
bool is_wanted(const Device& device) {
  return !device.communicator() || device.communicator()->rank() == 0;
}

// The whole of a tensor that each rank has a part of.
void gather_whole(const Tensor& part, const Tensor& whole, const Context& context) {
  Device& device = *context.device;
  const Tensor in = device.on_host() ? part.clone() : part;
  const Tensor out =
      device.on_host() ? whole : Tensor(whole.type(), context.allocate(whole.bytes()));
  const Communicator::Operand operand{in.raw(), out.raw(), part.numel(), part.dtype()};
  device.communicator()->all_gather({&operand, 1});
  if (!device.on_host() && is_wanted(device)) device.copy(out, whole);
}

}  // namespace

std::vector<WeightState> states_of(const Optimizer& o, const nn::Weight& w) {
  if (!w.trained) return {};
  return states_of(o, w.name, {DType::f32, w.shape});
}

std::vector<RunNumber> kept_of_run(const Optimizer& o) {
  return o.survey ? o.survey->kept : std::vector<RunNumber>();
}

void check_training_memory(const nn::Weights& weights, const Optimizer& optimizer) {
  check_host_memory(training_bytes(weights, optimizer),
                    "train: weights, averages and states of the optimiser");
}

int64_t training_bytes(const nn::Weights& weights, const Optimizer& optimizer) {
  int64_t bytes = host_bytes(weights, 2);  // trained ones and their averages
  for (const nn::Weight& w : weights)
    for (const WeightState& s : states_of(optimizer, w)) bytes += s.type.bytes();
  return bytes;
}

int64_t trained_elements(const nn::Weights& weights) {
  nn::Weights trained = weights;
  std::erase_if(trained, [](const nn::Weight& w) { return !w.trained; });
  return nn::count_elements(trained);
}

std::string trained_text(const nn::Weights& weights) {
  const int64_t all = nn::count_elements(weights), some = trained_elements(weights);
  return some == all ? str(all) : str(some, " of ", all);
}

TrainState initial_state(nn::Weights weights, uint64_t seed, const NamedTensors& given,
                         const Optimizer& optimizer) {
  check_training_memory(weights, optimizer);
  TrainState s{.weights = std::move(weights), .optimizer = &optimizer};
  for (const nn::Weight& w : s.weights) {
    const auto known = given.find(w.name);
    const Tensor t = known == given.end() ? nn::initial_tensor(w, seed) : known->second;
    require(t.type() == Type{DType::f32, w.shape}, "train: '", w.name, "' must be ",
            Type{DType::f32, w.shape}, " (given: ", t.type(), ")");
    s.tensors[w.name] = t;
    if (!w.trained) continue;
    s.tensors["ema." + w.name] = t.clone();
    for (const WeightState& state : states_of(optimizer, w))
      s.tensors[state.name] =
          state.begin == StateRule::Begin::weight ? t.clone() : Tensor(state.type);
  }
  for (const RunNumber& n : kept_of_run(optimizer))
    s.tensors[n.name] = scalar_tensor(static_cast<float>(n.begin));
  return s;
}

void bind_state(Plan& plan, const TrainState& state, const Split& split) {
  // What begins as zeros is so in a new run, as is what bind_missing() gives: another device needs
  // no copy of gigabytes of zeros.
  const bool zero_states = state.step == 0 && !plan.device().on_host();
  for (const nn::Weight& w : state.weights) {
    const bool in_parts = w.trained && is_split({DType::f32, w.shape}, split);
    const auto bind = [&](const std::string& name) {
      const Tensor& t = state.tensors.at(name);
      bind_weight(plan, name, in_parts ? part_of(t, split) : t);
    };
    bind(w.name);
    if (!w.trained) continue;
    bind("ema." + w.name);
    for (const WeightState& kept : states_of(*state.optimizer, w))
      if (!zero_states || kept.begin != StateRule::Begin::zeros) bind(kept.name);
  }
  for (const RunNumber& n : kept_of_run(*state.optimizer))
    plan.bind(n.name, state.tensors.at(n.name));
  plan.bind_missing();
}

void bind_weight(Plan& plan, const std::string& name, const Tensor& weight) {
  const Source* const source = plan.graph().find_source(name);
  if (!source && plan.graph().find_source(codes_of(name))) {
    const Quantised q = Quantised::of(name, weight);
    plan.bind(codes_of(name), q.codes);
    plan.bind(scales_of(name), q.scales);
    return;
  }
  const DType kept = source ? plan.graph().type(source->value).dtype : weight.dtype();
  plan.bind(name, kept == weight.dtype() ? weight : weight.to(kept));
}

void drop_tensors(TrainState& state) {
  for (auto& [name, t] : state.tensors) t = Tensor(t.type(), nullptr);
}

void fetch_state(const Plan& plan, TrainState& state, const Context& context) {
  std::set<std::string, std::less<>> frozen;
  for (const nn::Weight& w : state.weights)
    if (!w.trained) frozen.insert(w.name);
  for (auto& [name, host] : state.tensors) {
    if (frozen.contains(name)) continue;  // as they were
    const Tensor& own = plan.bound(name);
    if (own.type() != host.type())
      gather_whole(own, host, context);
    else if (is_wanted(*context.device))
      host = plan.fetch(name);
  }
}

std::string first_not_finite(const TrainState& state) {
  for (const auto& [name, t] : state.tensors)
    if (std::string wrong = not_finite_in(name, t); !wrong.empty()) return wrong;
  return "";
}

}  // namespace ebb::train
