// The state of a run: weights, averages and moments, on the host and in the plan of a step.
#pragma once

#include <cstdint>
#include <string>

#include "nn/weights.h"
#include "runtime/plan.h"
#include "train/optimizer.h"
#include "train/split.h"

namespace ebb::train {

// The state of training, on the host and whole on every rank. `tensors` has, by the names of the
// plan's sources, every weight w and, for trained ones, ema.<w> and what the optimiser keeps.
struct TrainState {
  nn::Weights weights;
  int64_t step = 0;  // steps done
  const Optimizer* optimizer = &find_optimizer("adamw");
  NamedTensors tensors;
};

// Weights as given, or drawn by their rules, averages equal to them, states of the optimiser as
// they begin.
// Throws Error before anything is drawn if the machine has too little memory, and for given ones of
// other types.
TrainState initial_state(nn::Weights weights, uint64_t seed, const NamedTensors& given = {},
                         const Optimizer& optimizer = find_optimizer("adamw"));
// What the optimiser keeps of a weight, of one that is not trained nothing; and of a run.
std::vector<WeightState> states_of(const Optimizer& o, const nn::Weight& w);
std::vector<RunNumber> kept_of_run(const Optimizer& o);
void check_training_memory(const nn::Weights& weights, const Optimizer& optimizer);
// Of a whole state.
int64_t training_bytes(const nn::Weights& weights, const Optimizer& optimizer);

int64_t trained_elements(const nn::Weights& weights);
// "860", or "12 of 860" where not all are trained.
std::string trained_text(const nn::Weights& weights);

// Gives the plan the state's tensors, or this rank's parts. On the host the plan then works in the
// state's own memory; elsewhere fetch_state() brings it up to date.
void bind_state(Plan& plan, const TrainState& state, const Split& split = {});
// Gives a plan one of its weights on the host, whole or a part, in the dtype that it keeps it in:
// what is not trained may be in 16 bits (passes/precision/narrow_states.h), or in 8
// (quantise_states.h).
void bind_weight(Plan& plan, const std::string& name, const Tensor& weight);
// Only types are left: for a rank that does not write the state, and whose device has it.
void drop_tensors(TrainState& state);
// All ranks call it; the state of rank 0 is up to date then.
void fetch_state(const Plan& plan, TrainState& state, const Context& context);
// Names a weight, average or moment with NaN or infinity, and where; "" if all are finite.
std::string first_not_finite(const TrainState& state);

}  // namespace ebb::train
