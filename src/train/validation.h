// Validation: the loss on images that training does not see, in the averaged weights, with the same
// noise each time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "runtime/plan.h"
#include "train/config.h"
#include "train/dataset.h"

namespace ebb::train {

// What a run measures. Item k of the validation set is held-out image k % n with the noise of
// number k: more items than images are further draws of noise.
struct Validation {
  Graph loss;  // inputs and output as those of the training loss; without dropout
  std::vector<Graph> other_losses = {};  // of batches whose inputs have other shapes
  int64_t batches = 0;
  std::function<NamedTensors(int64_t)> batch;  // number 0 to batches - 1: a pure function
  int64_t every = 0;                           // steps
};

// The step of what is drawn for validation. Training has no such step, so that no item sees the
// noise that an image was trained with.
constexpr int64_t validation_step = 0xffffffff;
// Items of a validation: the loss of one varies by as much as its mean.
constexpr int64_t fewest_items = 64;

// Steps from one validation of so many batches to the next: config.validation_every, or if that is
// 0 so many that it takes about 1 % of the time.
int64_t validation_interval(const TrainConfig& config, int64_t batches);

// How many images the setting `validation` holds out: of `images` for training, or of a test split
// of `test_images` (0: there is none). auto: one in 20, at most 256, of sets of 100 images and
// more; of a test split 256. Throws Error for what is no number, share, auto or off, and for more
// images than there are to spare.
int64_t held_out_count(const std::string& setting, int64_t images, int64_t test_images);

// A line for people on why `auto` holds out none of so few.
std::string too_few_to_hold_out(int64_t images);

// A data set in two. Held-out images are spread evenly over the set, as `limit` spreads them; the
// others keep their order.
struct HeldOut {
  std::unique_ptr<Dataset> training;
  std::unique_ptr<Dataset> validation;  // null: none
  std::string note;                     // for people: what is held out, or why nothing is
};
// `options`: those that `data` was opened with. Where the data has a test split of its own, its
// images are taken, and training keeps all of its own. Throws Error.
HeldOut hold_out(std::unique_ptr<Dataset> data, const std::string& path,
                 const DatasetOptions& options, const std::string& setting);

// How the images of `data` make a validation of a run: batches of the size of the run's, and how
// often; of several ranks, each has its share of each batch. `loss` is left to the caller. The data
// set must outlive the result.
Validation validation_of(const Dataset& data, const TrainConfig& config, const Split& split = {});

// Runs it, in the memory that the plan of training keeps its averages in.
class Validator {
 public:
  // Throws Error where the device lacks the memory.
  Validator(Validation validation, const TrainConfig& config, const StepOptions& options,
            const Context& context, const Plan& training);
  // The mean over all items; all ranks call it. `between` is called before each batch.
  double loss(const std::function<void()>& between = {});

 private:
  void bind_averages();
  Plan& plan_of(const NamedTensors& batch);
  Validation validation_;
  uint64_t seed_;
  const Plan& training_;
  std::vector<std::unique_ptr<Plan>> plans_;  // by shape, in one arena
};

}  // namespace ebb::train
