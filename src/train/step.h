// The training step: loss, gradients, clipping, the optimiser and EMA as one graph, so that a
// training step is one run of one plan.
//
// The step's state: each param p, what the optimiser keeps of it (AdamW m.<p> and v.<p>) and of the
// run, its EMA ema.<p> and, with accumulation, the accumulated gradient acc.<p>. A non-finite loss
// or gradient changes none of p, ema and what the optimiser keeps. Of several ranks each runs the
// same graph on its share of the batch; what is split (train/split.h) has the sources of its part
// under the names of the whole.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/plan.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/split.h"
#include "train/tensorboard.h"

namespace ebb::train {

struct StepOptions {
  DType dtype = DType::f32;  // of matmuls and convolutions; weights, moments and averages are f32
  std::string optimizer = "adamw";
  OptimizerSettings settings = {};  // weight_decay applies to all params but `undecayed`
  double max_norm = 0;              // of all gradients together; 0: no clipping
  bool ema = true;
  bool accumulate = false;               // several micro-batches per step; see StepInputs
  std::set<std::string> undecayed = {};  // names, see nn::without_decay()
  // Factors of the learning rate by the names of weights; of all others 1.
  std::map<std::string, double> rates = {};
  Split split = {};
};

// `loss` has the f32[] output "loss". The result has the outputs "loss", "grad_norm" (before
// clipping), "finite" (f32[], 1 or 0), the other outputs of `loss`, and the inputs of
// step_inputs(). "loss" is of this rank's share of the last micro-batch; with accumulation there is
// also "step_loss", of all of them, and with several ranks "ranks" f32[ranks, RankReport::numbers].
// What the step does and tells else is of all ranks, and the same bits on each: f32[] outputs
// "told.<name>" of `loss`, which are of the last micro-batch, become the mean of all ranks'.
Graph train_step(const Graph& loss, const StepOptions& options);

// The loss as a rank computes it: in the dtypes of its matrix work, of parts of what is split.
Graph loss_of_rank(const Graph& loss, const StepOptions& options);

// With accumulation: of all micro-batches of a step but the last, which train_step() takes. Adds
// the gradients to those of the step. Outputs "loss" and "finite", of this rank. Ranks exchange
// nothing, unless gradients are split.
Graph accumulation_step(const Graph& loss, const StepOptions& options);

// What each rank tells the others with a step.
struct RankReport {
  static constexpr int64_t numbers = 3;
  double loss = 0;       // of all micro-batches; given by the step
  double wish = 0;       // why the rank wants to end behind this step; 0: it does not
  double preparing = 0;  // seconds that it needed for the inputs
};

// Numbers that change from step to step.
struct StepInputs {
  int64_t step = 0;  // 0, 1, 2, ...; Optimizer::numbers follow
  double lr = 0;
  double ema_decay = 0;
  // Gradient accumulation; the last micro-batch updates the weights.
  int64_t micro_batches = 1, micro_batch = 0;
  double earlier = 0;  // the sum of the losses of the micro-batches before
  RankReport report = {};
};
// The inputs that train_step() added, or accumulation_step(), which has fewer of them.
NamedTensors step_inputs(const StepInputs& in, const StepOptions& options);

// What the ranks told with a step, from its outputs, or with a micro-batch before the last, which
// tells nothing but its loss.
struct Reports {
  double loss = 0;       // of all ranks' images
  double wish = 0;       // of the first rank that wants to end
  int64_t slowest = -1;  // the rank that needed longest for its inputs
  double waiting = 0;    // seconds by which it did longer than the fastest
};
Reports read_reports(const NamedTensors& outputs);

// What the loss ("told.<name>") and the optimiser (RunNumber::told) tell of a step, from its
// outputs. Names are in the graph of the loss.
std::vector<NamedNumber> told_numbers(const NamedTensors& outputs, const Graph& loss,
                                      const StepOptions& options);

// The names of the sources that a step trains.
std::vector<std::string> trained_params(const Graph& g);

}  // namespace ebb::train
