// Optimizer: one rule by which a step changes weights, as data and as expressions of the step's
// graph, so that every device computes it. docs/optimisers.md says how.
// src/train/optimizers/<o>.cpp defines `const Optimizer& ebb::train::optimizers::<o>()`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "ir/graph.h"

namespace ebb::train {

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;   // decoupled: of the weight, times the learning rate
  std::string options = {};  // of the optimiser alone, as "d_coef=2,safeguard_warmup=true"
};

// What an optimiser keeps of a weight from step to step: a tensor under this name before the
// weight's.
struct StateRule {
  enum class Begin : uint8_t { zeros, weight };
  std::string prefix;
  // None: not kept of such a weight. Null: f32 of the weight's shape.
  std::optional<Type> (*type)(const Type& weight) = nullptr;
  Begin begin = Begin::zeros;
};

// A number that the host computes for each step t = 1, 2, ..., as the input "step.<name>".
struct StepNumber {
  std::string name;
  double (*at)(const OptimizerSettings& s, double t) = nullptr;
};

// A number that the optimiser keeps of a run, as the state <name>.
struct RunNumber {
  std::string name;
  double begin = 0;
  // Told with each step under this name, as `value` of what is kept; "": it is not.
  std::string_view told = {};
  double (*value)(const OptimizerSettings& s, double kept) = nullptr;
};

// One weight, or a rank's part of it.
struct UpdateInputs {
  Value p, g;                 // f32 of one shape: the weight and its gradient
  std::vector<Value> states;  // those of Optimizer::states that are kept of the weight
  Value lr, clip;             // f32[]; clip g is the gradient, and not positive skips the step
  std::vector<Value> numbers = {};              // f32[], as Optimizer::numbers
  std::vector<Value> run = {}, run_after = {};  // f32[], as Survey::kept
  Value ema = {}, ema_decay = {};               // of p's shape and f32[]; both or none
  OptimizerSettings settings = {};              // weight_decay 0 for weights without
};
struct Updated {
  Value p;
  std::vector<Value> states;
  Value ema;  // ema + (1 - ema_decay) (p' - ema); none without UpdateInputs::ema
};

// What an optimiser finds out of all weights together before it changes one.
struct SurveyInputs {
  std::vector<Value> run, sums, numbers;  // f32[]
  Value lr, clip;
  OptimizerSettings settings;
};
struct Survey {
  std::vector<RunNumber> kept;
  // f32[] of a weight, or of a part, which are summed over all weights and ranks.
  std::vector<Value> (*of_weight)(const UpdateInputs&) = nullptr;
  // What is kept behind the step. A clip that is not positive must change nothing.
  std::vector<Value> (*of_all)(const SurveyInputs&) = nullptr;
};

struct Optimizer {
  std::string name;  // as --optimizer has it
  std::string help;
  std::vector<std::string_view> reads;  // of beta1, beta2 and eps
  double beta2 = 0;                     // where the settings leave it open
  std::vector<StateRule> states;
  std::vector<StepNumber> numbers = {};
  // Ranks may update parts of weights, which are multiples of so many elements; what is kept of a
  // part is as large a part of what is kept of the weight. 0: an update reads a whole weight.
  int64_t grain = 1;
  // Its own, with their defaults. Null: it has none.
  std::vector<Option> (*options)() = nullptr;
  // Of these a run that goes on keeps its own: what is kept of it is a multiple of them.
  std::vector<std::string_view> fixed_options = {};
  // Throws Error, naming the option and the number, for settings that it does not take.
  // Null: it has no options.
  void (*check)(const OptimizerSettings&) = nullptr;
  // A learning rate that suits it where none is given. Null: it has none of its own.
  std::optional<double> (*rate)(const OptimizerSettings&) = nullptr;
  std::optional<Survey> survey = {};
  Updated (*update)(const UpdateInputs&) = nullptr;
};

// 1 - beta^t
double one_minus(double beta, double t);
// "c1" and "c2", 1 - beta1^t and 1 - beta2^t: of optimisers with Adam's moments.
std::vector<StepNumber> bias_corrections();

const std::vector<const Optimizer*>& all_optimizers();
std::vector<std::string> optimizer_names();
std::string optimizer_help();                              // each with its own help
bool reads(const Optimizer& o, std::string_view setting);  // beta1, beta2 or eps
// The names of those that read a setting: "adamw, adamw8bit, prodigy".
std::string readers_of(std::string_view setting);
// What beta2 is where it is left open, and of which: "0.999 (adamw, ...), 0.99 (...)".
std::string usual_beta2_help();
// The rates of those that have one of their own: "1 (prodigy)".
std::string own_rates_help();
// Throws Error, with the names, for an unknown one.
const Optimizer& find_optimizer(std::string_view name);
void check(const Optimizer& o, const OptimizerSettings& s);

// What OptimizerSettings::options says. Throws Error as base/options.h does.
template <class Options>
Options options_of(const OptimizerSettings& s) {
  constexpr std::string_view subject = "optimizer_options";
  Options out;
  set_options(fields_of(out), parse_options(s.options, subject), subject);
  return out;
}
// Throws Error, naming the option, for what is not above 0 or not finite.
void check_above_zero(std::string_view option, double value);

// A tensor that is kept of one weight.
struct WeightState {
  std::string name;
  Type type;
  StateRule::Begin begin;
};
std::vector<WeightState> states_of(const Optimizer& o, const std::string& weight, const Type& type);
// Whether a tensor of a state file is what some optimiser keeps of a weight or of a run.
bool is_optimizer_state(std::string_view tensor);

}  // namespace ebb::train
