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

// What `open` gives; errors of what opens checkpoints, which speaks of generating with them, speak
// of training.
auto of_training(auto&& open) {
  try {
    return open();
  } catch (const Error& e) {
    constexpr std::string_view other = "generate: ";
    const std::string what = e.what();
    if (typeid(e) != typeid(Error) || !what.starts_with(other)) throw;
    fail("train: ", what.substr(other.size()));
  }
}
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
  train::Captioned data;
  std::vector<train::Fit> fits;  // by picture
  std::unique_ptr<train::BucketOrder> order;

  std::vector<train::PictureSize> sizes() const;  // of the buckets, the largest first
};
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
