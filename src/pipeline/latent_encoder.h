// Pixels to latents by an autoencoder.
#pragma once

#include "pipeline/latent_statistics.h"
#include "pipeline/sized_plans.h"
#include "pipeline/text_stage.h"

namespace ebb {

// Latents of the denoiser, f32 [1,h,w,c].
struct EncodedImage {
  Tensor mean;
  Tensor deviation;  // the posterior's; not defined of autoencoders that have none
};

class LatentEncoder {
 public:
  // As latent_decoder() takes them.
  LatentEncoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype, Context context,
                LatentStatistics statistics = {}, CircularAxes tiling = {});
  LatentEncoder(const LatentEncoder&) = delete;  // plans refer to it
  LatentEncoder& operator=(const LatentEncoder&) = delete;

  // f32 [1,H,W,3] in [-1,1]. Throws Error.
  EncodedImage encode(const Tensor& pixels);
  // What encode() gives for such a size, of zeros; compiles its plan and runs nothing.
  EncodedImage sketch(const Shape& pixels);
  PlanNeeds needs(const Shape& pixels) { return plans_.of(pixels).needs(); }  // compiles it
  // Lets go of the device's memory until the next image.
  void release();

 private:
  bool has_posterior() const { return autoencoder_.component.model->name == "autoencoder_kl"; }

  LoadedComponent autoencoder_;
  LatentSpace space_;
  LatentStatistics statistics_;
  DType dtype_;
  Context context_;
  CircularAxes tiling_;
  SizedPlans plans_;
};

}  // namespace ebb
