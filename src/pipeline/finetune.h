// Fine-tuning: a training job on a checkpoint of text to image, of pictures with captions.
// docs/train-text-to-image.md shows the way of a batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "adapters/trainable.h"
#include "pipeline/checkpoint_parts.h"
#include "pipeline/train_encoders.h"
#include "train/bucket_order.h"
#include "train/buckets.h"
#include "train/captions.h"
#include "train/loop.h"

namespace ebb {

// Settings beside those of every training.
struct FinetuneConfig {
  std::string adapter = "none", targets = "attentions", names = "kohya", save_dtype = "f16";
  int64_t rank = 16, factor = -1;
  double alpha = 16;
  std::string text_encoder, vae, variant;
  int64_t resolution = 512;
  bool buckets = true, no_upscale = false, shuffle_tags = false;
  int64_t bucket_step = 64, bucket_min = 256, bucket_max = 1024, keep_tags = 0;
  double caption_dropout = 0;
  std::string caption_prefix, cache_dir;
  // Hashes of what the run began with; no flags.
  std::string base, base_encoders, base_data;

  void fields(auto&& f) {
    f("adapter", adapter, "what is trained in place of the network; none: the network itself");
    f("rank", rank, "adapter: columns of its factors");
    f("factor", factor, "adapter lokr: rows and columns of the first factor, at most; -1: any");
    f("alpha", alpha, "adapter: its change is scaled by alpha / rank");
    f("targets", targets,
      "adapter: layers with one of these parts, between commas, in their names, the original's or "
      "diffusers': attentions, to_q,to_v, ...");
    f("names", names, "adapter: whose names its file has: kohya (A1111, ComfyUI) or peft");
    f("save_dtype", save_dtype, "of the model files: f32, f16 or bf16; resuming always has f32");
    f("text_encoder", text_encoder, "a file with the text encoder, if the model lacks it");
    f("vae", vae, "a file or folder with another autoencoder");
    f("variant", variant, "of the files in a folder of diffusers: fp16");
    f("resolution", resolution, "pictures have about the pixels of a square of this side");
    f("buckets", buckets, "several aspect ratios; off: all pictures are cropped to the square");
    f("bucket_step", bucket_step, "pixels between sides of buckets");
    f("bucket_min", bucket_min, "smallest side of a bucket");
    f("bucket_max", bucket_max, "largest side of a bucket");
    f("no_upscale", no_upscale, "no picture is enlarged: small ones get buckets of their own");
    f("caption_dropout", caption_dropout, "probability that training sees no caption");
    f("shuffle_tags", shuffle_tags, "shuffle the parts of captions between commas");
    f("keep_tags", keep_tags, "shuffle_tags: so many parts at the start stay there");
    f("caption_prefix", caption_prefix, "text before every caption");
    f("cache_dir", cache_dir, "folder of latents and text states; empty: cache/ in `out`");
    f("base", base, "hash of the weights that the run began with");
    f("base_encoders", base_encoders, "of the autoencoder and the text encoders, and their use");
    f("base_data", base_data, "of the pictures and captions");
  }
  void choices(auto&& f) { f("save_dtype", save_dtype, {"f32", "f16", "bf16"}); }

  bool adapts() const { return adapter != "none"; }
  train::BucketOptions bucket_options() const {
    return {resolution, buckets, bucket_step, bucket_min, bucket_max, no_upscale};
  }
  train::CaptionOptions caption_options() const {
    return {caption_dropout, shuffle_tags, keep_tags, caption_prefix};
  }
};
// Throws Error for what cannot be, and for settings of an adapter where there is none.
void check(const FinetuneConfig& config);

// What a run is begun with.
struct FinetuneRequest {
  train::TrainConfig train;
  FinetuneConfig config;
  std::vector<std::pair<std::string, std::string>> diffusion;  // fields instead of the checkpoint's
  std::function<void(std::string_view)> say;
  std::function<void()> between = [] {};  // called often while data is prepared; may throw
  // Of pictures and captions that are encoded.
  std::function<void(int64_t done, int64_t all)> progress = [](int64_t, int64_t) {};
};

// The job, and what its batches refer to.
class Finetune {
 public:
  // Reads the checkpoint and the pictures and makes what of latents and texts is not kept yet.
  // Throws Error.
  Finetune(FinetuneRequest request, const Context& context);
  Finetune(const Finetune&) = delete;
  Finetune& operator=(const Finetune&) = delete;
  train::TrainJob job();

 private:
  void read_weights();
  void read_pictures();
  void encode_all();
  std::vector<Graph> losses();
  NamedTensors batch(int64_t number);
  void add_latents(NamedTensors& to, int64_t row, int64_t picture, int64_t image);
  void add_texts(NamedTensors& to, int64_t row, int64_t picture, int64_t image);
  void write_model(const std::string& path, const train::TrainState& state,
                   const std::map<std::string, std::string>& metadata) const;
  // Before the names of the weights that files have: of averages, unless there are none.
  std::string prefix() const { return c_.ema > 0 || c_.ema_halflife > 0 ? "ema." : ""; }
  int64_t micro_batch() const { return c_.batch / c_.accumulation; }

  FinetuneRequest request_;
  train::TrainConfig& c_;
  FinetuneConfig& f_;
  CheckpointParts parts_;
  nn::Weights weights_;
  NamedTensors given_;
  std::unique_ptr<adapters::TrainableAdapter> adapter_;
  train::Captioned data_;
  std::vector<train::Fit> fits_;  // by picture
  std::unique_ptr<train::BucketOrder> order_;
  TensorCache cache_;
  std::unique_ptr<TrainLatents> latents_;
  std::unique_ptr<TrainTexts> texts_;
  NamedTensors empty_;                  // the conditions of the empty caption
  mutable std::set<std::string> said_;  // of the files that were written
};

}  // namespace ebb
