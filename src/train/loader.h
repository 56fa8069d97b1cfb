// Batches for training: decoded and augmented by background threads, handed out in order. What a
// batch holds is a pure function of (data set, options, step).
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/seed.h"
#include "core/tensor.h"
#include "train/augment.h"
#include "train/config.h"
#include "train/dataset.h"

namespace ebb::train {

constexpr int64_t most_loaders = 8;  // threads, unless their number is given

struct LoaderOptions {
  int64_t batch = 64;  // images a step, over all ranks
  Seed seed = 0;       // of the order, the flips and the augmentation
  bool flip = false;   // mirror every other image at random (part of augment already)
  AugmentOptions augment{};
  int64_t threads = 0;   // 0: all that this process may use, at most most_loaders
  int64_t prefetch = 0;  // batches made ahead, at most; 0: threads + 1
  int64_t rank = 0;      // this process's slice of each batch: rows [rank, rank+1) * batch / ranks
  int64_t ranks = 1;     // must divide batch

  void fields(auto&& f) {
    f("batch", batch, "images a step, over all processes");
    f("seed", seed, "seed of the order, the flips and the augmentation");
    f("flip", flip, "mirror every other image at random");
    f("threads", threads, "decoding threads; 0: all that this process may use, at most 8");
    f("prefetch", prefetch, "batches made ahead; 0: threads + 1");
  }
};

// B = batch / ranks.
struct Batch {
  int64_t step = 0;
  Tensor images;   // f32 [B,H,W,C], u8 images in [-1,1]
  Tensor labels;   // i64 [B]; 0 if the set has no classes
  Tensor index;    // i64 [B]: the image's number in the run, step * batch + row
  Tensor augment;  // f32 [B,9], only if augment.p > 0
};

// The batch of a step, made at once on this thread. Throws Error.
Batch make_batch(const Dataset& data, const LoaderOptions& options, int64_t step);

// next() gives the batches first_step, first_step + 1, ... as make_batch does. A worker's exception
// is thrown by next() in place of its batch, and again by every later next(). `data` must outlive
// the loader.
class BatchLoader {
 public:
  BatchLoader(const Dataset& data, LoaderOptions options, int64_t first_step = 0);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  Batch next();

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };
  void work(const std::stop_token& stop);
  Slot& slot(int64_t step) { return slots_[static_cast<size_t>(step) % slots_.size()]; }

  const Dataset& data_;
  LoaderOptions options_;
  std::mutex mutex_;
  std::condition_variable_any ready_;  // a slot was filled
  std::condition_variable_any room_;   // a slot was emptied
  std::vector<Slot> slots_;            // of step % prefetch
  int64_t claimed_;                    // the next step that a worker takes
  int64_t wanted_;                     // the step that next() gives
  std::vector<std::jthread> workers_;  // last: they stop before the rest goes
};

// Of f32 [H,W,C], in place.
void mirror(float* pixels, const Shape& shape);
// Whether the image at a position of the run is mirrored, where half of them are.
bool flips(uint64_t seed, int64_t position);

// The next micro-batch: inputs of the loss graph by name, `batch / accumulation` images. Names
// without an input in the graph are ignored.
using NextBatch = std::function<NamedTensors()>;

// Batches of a data set as inputs of a loss graph: images, labels, image (the index of the image in
// the run) and augment. Of several ranks, each has the same share of every micro-batch. The data
// set must outlive the result.
std::function<NextBatch(int64_t)> dataset_batches(const Dataset& data, const TrainConfig& config,
                                                  const Split& split = {});

}  // namespace ebb::train
