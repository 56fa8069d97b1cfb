// Pixels to latents by an autoencoder.
#pragma once

#include <functional>

#include "pipeline/latent_space.h"
#include "pipeline/sized_plans.h"
#include "pipeline/text_stage.h"
#include "pipeline/tiles.h"

namespace ebb {

// Latents of the denoiser, f32 [1,h,w,c].
struct EncodedImage {
  Tensor mean;
  Tensor deviation;  // the posterior's; not defined of autoencoders that have none
};

class LatentEncoder {
 public:
  // As latent_decoder() takes them.
  LatentEncoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                Context context, CircularAxes circular = {});
  LatentEncoder(const LatentEncoder&) = delete;  // plans refer to it
  LatentEncoder& operator=(const LatentEncoder&) = delete;

  // f32 [1,H,W,3] in [-1,1]. Where the device's memory is too short for the whole, the largest
  // tiles that fit are encoded. `progress` as that of LatentDecoder::decode(). Throws Error.
  EncodedImage encode(const Tensor& pixels, const std::function<void(double)>& progress = {});
  // What encode() gives for such a size, of zeros; compiles its plan and runs nothing.
  EncodedImage sketch(const Shape& pixels);
  // What the plan of tiles of this side in latents needs, 0: of the whole image; compiles it.
  PlanNeeds needs(const Shape& pixels, int64_t tile = 0);
  // Tiles of a larger side are not used any more; 0: whole images are.
  void set_largest(int64_t tile) { plans_.set_largest(tile * scaling_.space.factor); }
  // Lets go of the device's memory until the next image.
  void release();

 private:
  std::vector<Tiling> tilings(const Shape& pixels) const;
  bool has_posterior() const { return autoencoder_.component.model->name == "autoencoder_kl"; }

  LoadedComponent autoencoder_;
  LatentScaling scaling_;
  DType dtype_;
  Context context_;
  CircularAxes circular_;
  TiledPlans plans_;
};

}  // namespace ebb
