// Batches for training: decoded and augmented by background threads, handed out in order. What a
// batch holds is a pure function of (data set, options, step).
#pragma once

#include <functional>
#include <optional>

#include "base/seed.h"
#include "core/tensor.h"
#include "train/augment.h"
#include "train/config.h"
#include "train/dataset.h"
#include "train/prefetcher.h"

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

  Batch next();

 private:
  std::optional<Prefetcher<Batch>> batches_;
};

// Of f32 [H,W,C], in place.
void mirror(float* pixels, const Shape& shape);
// Whether the image at a position of the run is mirrored, where half of them are.
bool flips(uint64_t seed, int64_t position);

// The next micro-batch: inputs of the loss graph by name, `batch / accumulation` images. Names
// without an input in the graph are ignored.
using NextBatch = std::function<NamedTensors()>;

// make(first), make(first + 1), ...: each is made on another thread while the one before is trained
// on. What `make` throws is thrown in place of its batch.
NextBatch prefetched_batches(std::function<NamedTensors(int64_t number)> make, int64_t first);

// Batches of a data set as inputs of a loss graph: images, labels, image (the index of the image in
// the run) and augment. Of several ranks, each has the same share of every micro-batch. The data
// set must outlive the result.
std::function<NextBatch(int64_t)> dataset_batches(const Dataset& data, const TrainConfig& config,
                                                  const Split& split = {});

}  // namespace ebb::train
