// The training loop: runs the step's plan on batches, with metrics, checkpoints and resume.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ranks/tcp_group.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/loader.h"
#include "train/metrics.h"
#include "train/stop.h"
#include "train/validation.h"

namespace ebb::train {

// Callbacks between steps. Called with the state up to date on the host; on the CPU its tensors are
// those of the running training and must not be written.
struct Hooks {
  // Every sample_every steps and at the end; when a run resumes, for the step it resumes at if that
  // step's picture (sample_file) is missing.
  std::function<void(const TrainState&, const StopSignals&)> sample = {};
  // With every checkpoint; adds values to the metrics.
  std::function<void(const TrainState&, MetricsLog&)> evaluate = {};
  std::function<void(std::string_view)> log = {};  // messages for the user
  std::function<bool()> stop = {};                 // polled after every step, as the signals are
  bool json = false;  // a signal before the first step is told as JSON on standard output, too
};

struct TrainJob {
  TrainConfig config;
  RunInfo info;  // train_config is filled in
  // Output "loss" f32[]. Inputs: those of a batch; "seed" i64[] and "step" i64[], if it has them,
  // are given by the loop. Outputs "told.<name>" f32[] are numbers of the metrics.
  Graph loss;
  // Of batches whose inputs have other shapes; all else as in `loss`.
  std::vector<Graph> other_losses = {};
  nn::Weights weights;                       // of the loss
  std::map<std::string, double> rates = {};  // StepOptions::rates
  // Some of the weights, as the network has them: trained ones start so, others stay so. All others
  // are drawn.
  NamedTensors given = {};
  WriteModel write_model = {};  // null: the network's own tensors
  // Returns the micro-batches first, first + 1, ... of the run.
  std::function<NextBatch(int64_t first)> batches;
  // Whether they may be asked for on another thread while a step runs.
  bool batches_on_any_thread = false;
  std::optional<Validation> validation = {};
  std::string data = {};  // a line for people: what is trained on
  int64_t images = 0;     // RunFacts::images
  Hooks hooks = {};
  // Of a run of several ranks, whose device has joined the group; null: there is one. `loss` and
  // the batches are this rank's share then. Rank 0 writes the folder and calls the hooks.
  ranks::TcpGroup* ranks = nullptr;
};

struct TrainResult {
  enum class Stop : uint8_t { steps, minutes, signal, hook };
  Stop why = Stop::steps;
  int signal = 0;          // the signal's number, if that is why
  int64_t step = 0;        // steps done
  double loss = 0;         // RecentLoss; 0: of no step here, or not of rank 0
  std::string checkpoint;  // the model file of the last checkpoint
};

// Trains from the start or, with config.resume, from the last checkpoint, bit-identical to an
// uninterrupted run. SIGINT or SIGTERM finish the step and save. Throws Error for a non-finite loss
// or gradient, naming the step and the tensor; the state before it is saved. Several ranks stop and
// fail together.
TrainResult train(TrainJob job, const Context& context);

}  // namespace ebb::train
