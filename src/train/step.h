// The training step: loss, gradients, clipping, AdamW and the average of the weights as one graph,
// so that a step of training is one run of one plan.
//
// What the step keeps between runs: each param p, its moments m.<p> and v.<p>, its average ema.<p>
// and, with accumulation, the sum of gradients acc.<p>. A loss or gradient that is not finite
// changes none of p, m, v and ema.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/adamw/op.h"
#include "runtime/plan.h"
#include "train/schedule.h"

namespace ebb::train {

struct StepOptions {
  DType dtype = DType::f32;  // of matrix work; weights, moments and averages are f32
  ops::AdamW adamw = {};     // weight_decay holds for params whose ParamInfo says decay
  double max_norm = 0;       // of all gradients together; 0: no clipping
  bool ema = true;
  bool accumulate = false;  // several runs may make a step; see StepInputs
};

// `loss` has the f32[] output "loss". The result has the outputs "loss", "grad_norm" (before
// clipping), "finite" (f32[], 1 or 0), those that `loss` has besides, and further inputs, which
// step_inputs() gives.
Graph train_step(const Graph& loss, const StepOptions& options);

// Numbers that change from step to step.
struct StepInputs {
  int64_t step = 0;  // 0, 1, 2, ...; Adam's bias corrections follow
  double lr = 0;
  double ema_decay = 0;
  int64_t micro_batches = 1,
          micro_batch = 0;  // of a step with accumulation; the last part changes the weights
};
// The inputs that train_step added.
NamedTensors step_inputs(const StepInputs& in, const StepOptions& options);

// The names of the sources that a step trains.
std::vector<std::string> trained_params(const Graph& g);

}  // namespace ebb::train
