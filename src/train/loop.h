// The training loop: batches through the step's plan, with metrics, checkpoints and a way back in.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/dataset.h"
#include "train/metrics.h"

namespace ebb::train {

// The next part of a step: inputs of the loss graph by name, `batch / accumulation` images. Names
// that the graph has no input for are left out.
using NextBatch = std::function<NamedTensors()>;

// Work between steps. Called with the state up to date on the host; on the CPU its tensors are the
// ones that training goes on with, not to be written.
struct Hooks {
  // Every sample_every steps and at the end.
  std::function<void(const TrainState&)> sample = {};
  // With every checkpoint; adds its numbers to the metrics.
  std::function<void(const TrainState&, MetricsLog&)> evaluate = {};
  std::function<void(std::string_view)> log = {};  // lines for people
  std::function<bool()> stop = {};                 // polled after every step, as the signals are
};

struct TrainJob {
  TrainConfig config;
  RunInfo info;  // train_config is filled in
  // Output "loss" f32[]. Inputs: those of a batch; "seed" i64[] and "step" i64[], if it has them,
  // are given by the loop.
  Graph loss;
  // Gives the parts number first, first + 1, ... of the run.
  std::function<NextBatch(int64_t first)> batches;
  Hooks hooks = {};
};

struct TrainResult {
  enum class Stop : uint8_t { steps, minutes, signal, hook };
  Stop why = Stop::steps;
  int signal = 0;          // the number of the signal, if that is why
  int64_t step = 0;        // steps done
  double loss = 0;         // smoothed
  std::string checkpoint;  // the model file of the last checkpoint
};

// Trains from the start or, with config.resume, from the last checkpoint, to the same bits as
// without the break. SIGINT or SIGTERM finish the step and save. Throws Error for a loss or
// gradient that is not finite, naming the step and the tensor; the state before it is saved.
TrainResult train(TrainJob job, const Context& context);

// Batches of a data set as a loss graph takes them: images, labels, image (the number of the image
// in the run) and augment. The data set must outlive the result.
std::function<NextBatch(int64_t)> dataset_batches(const Dataset& data, const TrainConfig& config);

}  // namespace ebb::train
