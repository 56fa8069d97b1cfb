// What trainings on a checkpoint share: how they are begun, their pictures, their files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/error.h"
#include "pipeline/checkpoint_parts.h"
#include "pipeline/finetune_config.h"
#include "train/bucket_order.h"
#include "train/loop.h"

namespace ebb {

// What a run is begun with.
struct FinetuneRequest {
  train::TrainConfig train;
  FinetuneConfig config;
  std::vector<std::pair<std::string, std::string>> diffusion;  // fields instead of the checkpoint's
  // Of a run of several ranks: how it is split, and how many of them share the memory of this host.
  // Threads of this process that decode; 0: all that it may use.
  train::Split split = {};
  int64_t ranks_here = 1;
  int64_t threads = 0;
  std::function<void(std::string_view)> say;
  std::function<void()> between = [] {};  // called often while data is prepared; may throw
  // Of pictures that are decoded, and of pictures and captions that are encoded: `what` is done.
  std::function<void(const char* what, int64_t done, int64_t all)> progress =
      [](const char*, int64_t, int64_t) {};
};

// A job, and what its batches refer to.
class CheckpointTraining {
 public:
  CheckpointTraining() = default;
  CheckpointTraining(const CheckpointTraining&) = delete;
  CheckpointTraining& operator=(const CheckpointTraining&) = delete;
  virtual ~CheckpointTraining() = default;
  virtual train::TrainJob job() = 0;
};
// By what is trained. Reads the checkpoint and the pictures. Throws Error.
std::unique_ptr<CheckpointTraining> begin_training(FinetuneRequest request, const Context& context);

// ---- for them ------------------------------------------------------------------------------

// What `open` gives; errors that begin with `other` begin with `subject`.
auto as_errors_of(std::string_view subject, std::string_view other, auto&& open) {
  try {
    return open();
  } catch (const Error& e) {
    const std::string what = e.what();
    if (typeid(e) != typeid(Error) || !what.starts_with(other)) throw;
    fail(subject, what.substr(other.size()));
  }
}
// Errors of what opens checkpoints, which speaks of generating with them, speak of training.
auto of_training(auto&& open) { return as_errors_of("train: ", "generate: ", open); }
// Where the resolution is open, the request takes that of the checkpoint.
CheckpointParts open_checkpoint(FinetuneRequest& request);
// f32 in the network's layout. Throws Error.
Tensor weight_of(const nn::Weight& weight, const WeightStore& store);
// What a run began with stays: sets `recorded`, which is empty in new runs, or throws Error.
void keep(std::string& recorded, const std::string& now, std::string_view what,
          const std::string& file);
std::string cache_folder(const FinetuneRequest& request);
// A row of a tensor [N,...] gets `value`, [1,...] or [...].
void put_row(Tensor& to, int64_t row, const Tensor& value);

struct TrainPictures {
  train::Captioned data;         // also those that are held out
  std::vector<train::Fit> fits;  // by picture
  std::unique_ptr<train::BucketOrder> order;
  std::unique_ptr<train::BucketOrder> held_out;  // null: none is

  std::vector<int64_t> trained() const;  // those that are not held out
};
// Of the buckets, the largest first.
std::vector<train::PictureSize> sizes_of(const train::BucketOrder& order);

// What a rank computes of a batch.
struct PictureBatch {
  train::PictureSize bucket;
  std::vector<int64_t> pictures;  // a row each
  int64_t first = 0;              // number of the first row's image in the run
  bool measured = false;          // held-out pictures, which come as they are: nothing is mirrored
};
PictureBatch batch_of(const train::BucketOrder& order, int64_t number, const train::Split& split);
// Says what was read. Throws Error.
TrainPictures read_train_pictures(FinetuneRequest& request, const std::string& cache);

// A weight of the checkpoint's file.
struct CheckpointWeight {
  const std::string& file;
  const Component& component;
  const std::string& weight;
};
bool is_from(const LoadedComponent& component, const CheckpointWeight& weight);

// Writes checkpoints of all components, with those weights replaced that are trained.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(const FinetuneRequest& request) : request_(request) {}
  // Before the names of the weights that files have: of averages, unless there are none.
  std::string prefix() const;
  struct Facts {
    const DiffusionConfig& diffusion;
    const std::map<std::string, std::string>& metadata;
  };
  // `name`: in the state, of a weight of the file; none: it is not there.
  void write(const std::string& path, const train::TrainState& state, const Facts& facts,
             const std::function<std::optional<std::string>(const CheckpointWeight&)>& name);

 private:
  const FinetuneRequest& request_;
  std::set<std::string> said_;  // of the files that were written
};

}  // namespace ebb
