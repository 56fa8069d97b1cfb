// What a denoiser is trained on, by the frozen encoders of its checkpoint: latents of pictures and
// conditions of captions, each made once and kept in a cache.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/checkpoint_parts.h"
#include "pipeline/latent_encoder.h"
#include "pipeline/tensor_cache.h"
#include "train/buckets.h"

namespace ebb {

// f32 [1,H,W,3] in [-1,1]. Throws Error.
Tensor signed_pixels(const train::CaptionedPicture& picture, const train::Fit& fit, bool mirrored);

// Encoders work in f32: what they make is made once, and trained on for long.
class TrainLatents {
 public:
  // Throws Error for a checkpoint without an autoencoder.
  TrainLatents(const CheckpointParts& parts, const Context& context, TensorCache& cache);

  // The autoencoder's posterior, f32 [h,w,c] in the denoiser's numbers: "mean" and, of those that
  // have one, "deviation". Throws Error.
  NamedTensors of(const train::CaptionedPicture& picture, const train::Fit& fit, bool mirrored);
  int64_t factor() const { return factor_; }  // pixels to a latent, along each side
  void release() { encoder_.release(); }
  const std::string& settings() const { return settings_; }

 private:
  TensorCache& cache_;
  LatentEncoder encoder_;
  int64_t factor_;
  std::string settings_;  // what latents depend on beside the picture
};

// What a text brings: states of frozen encoders, or tokens for encoders that are part of the loss.
enum class TextForm : uint8_t { states, tokens };

// New vectors that a name in captions stands for.
struct NewVectors {
  std::string name;
  int64_t count = 0;  // 0: none
};

class TrainTexts {
 public:
  TrainTexts(const CheckpointParts& parts, const Context& context, TensorCache& cache,
             TextForm form, NewVectors vectors = {});

  // Of one image, [1,...] by name. `kept`: in the cache; others are made each time, as tokens are,
  // which takes no time.
  NamedTensors of(const std::string& caption, train::PictureSize size, bool kept);
  // What the loss reads of that: the denoiser's conditions, or the encoders' inputs in their place.
  std::vector<nn::Condition> conditions() const;
  const std::vector<EncoderRule>& rules() const { return rules_; }
  void release() { stage_->release(); }
  // Captions of which the end was cut off, so far, as often as they were asked for.
  struct Cut {
    int64_t count = 0;
    std::string first;  // for a message: its beginning
  };
  const Cut& cut() const { return cut_; }
  bool reads_sizes() const { return reads_sizes_; }
  // Whether a condition of that name is made of captions.
  static bool gives(std::string_view condition);
  const std::string& settings() const { return settings_; }

 private:
  NamedTensors cached(const std::string& caption, train::PictureSize size);
  NamedTensors made(const std::string& caption, train::PictureSize size);

  TensorCache& cache_;
  TextForm form_;
  NewVectors vectors_;
  std::vector<nn::Condition> known_;  // of the denoiser
  std::vector<EncoderRule> rules_;
  std::unique_ptr<TextStage> stage_;
  std::string settings_;  // likewise
  bool reads_sizes_ = false;
  Cut cut_;
};

}  // namespace ebb
