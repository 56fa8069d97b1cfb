// Optimizer: one rule by which a step changes weights.
// src/train/optimizers/<o>.cpp defines `const Optimizer& ebb::train::optimizers::<o>()`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ebb::train {

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // decoupled: of the weight, times the learning rate
};

// One weight, or a rank's part of it.
struct UpdateInputs {
  Value p, g;                  // f32 of one shape: the weight and its gradient
  std::vector<Value> states;   // as Optimizer::states has them, of p's shape
  Value lr, clip;              // f32[]; clip g is the gradient, and not positive skips the step
  Value c1, c2;                // f32[], 1 - beta1^t and 1 - beta2^t in step t = 1, 2, ...
  Value ema, ema_decay;        // of p's shape and f32[]; both or none
  OptimizerSettings settings;  // weight_decay 0 for weights without
};
struct Updated {
  Value p;
  std::vector<Value> states;
  Value ema;  // ema + (1 - ema_decay) (p' - ema); none without UpdateInputs::ema
};

struct Optimizer {
  std::string name;  // as --optimizer has it
  std::string help;
  double beta2 = 0;  // where the settings leave it open
  // What it keeps of a weight, in f32 and of its shape: the beginnings of names, before the
  // weight's. All begin as zeros.
  std::vector<std::string> states;
  // Nothing else may read more of a weight than its own element: ranks update parts of weights.
  Updated (*update)(const UpdateInputs&) = nullptr;
};

const std::vector<const Optimizer*>& all_optimizers();
std::vector<std::string> optimizer_names();
// Throws Error, with the names, for an unknown one.
const Optimizer& find_optimizer(std::string_view name);
// Whether a tensor of a state file is what some optimiser keeps of a weight.
bool is_optimizer_state(std::string_view tensor);

}  // namespace ebb::train
