// The training step: loss, gradients, clipping, AdamW and EMA as one graph, so that a training step
// is one run of one plan.
//
// The step's state: each param p, its moments m.<p> and v.<p>, its EMA ema.<p> and, with
// accumulation, the accumulated gradient acc.<p>. A non-finite loss or gradient changes none of p,
// m, v and ema.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/adamw/op.h"
#include "runtime/plan.h"
#include "train/schedule.h"

namespace ebb::train {

struct StepOptions {
  DType dtype = DType::f32;  // of matmuls and convolutions; weights, moments and averages are f32
  ops::AdamW adamw = {};     // weight_decay applies to params with ParamInfo::decay
  double max_norm = 0;       // of all gradients together; 0: no clipping
  bool ema = true;
  bool accumulate = false;  // several runs per step; see StepInputs
};

// `loss` has the f32[] output "loss". The result has the outputs "loss", "grad_norm" (before
// clipping), "finite" (f32[], 1 or 0), the other outputs of `loss`, and the inputs of
// step_inputs().
Graph train_step(const Graph& loss, const StepOptions& options);

// Numbers that change from step to step.
struct StepInputs {
  int64_t step = 0;  // 0, 1, 2, ...; Adam's bias corrections follow
  double lr = 0;
  double ema_decay = 0;
  // Gradient accumulation; the last micro-batch updates the weights.
  int64_t micro_batches = 1, micro_batch = 0;
};
// The inputs that train_step added.
NamedTensors step_inputs(const StepInputs& in, const StepOptions& options);

// The names of the sources that a step trains.
std::vector<std::string> trained_params(const Graph& g);

}  // namespace ebb::train
