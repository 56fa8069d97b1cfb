// Latents to pixels by an autoencoder.
#pragma once

#include <functional>
#include <vector>

#include "pipeline/decoder.h"
#include "pipeline/latent_space.h"
#include "pipeline/sized_plans.h"
#include "pipeline/text_stage.h"
#include "pipeline/tiles.h"

namespace ebb {

// Decodes one image at a time, so that batches need no more memory. Where the device's memory is
// too short for a whole image, the largest tiles that fit are decoded, and `tells` is called with
// them once a size.
class LatentDecoder {
 public:
  using Tells = std::function<void(const Tiling&)>;
  // `scaling`: of the denoiser's latents. `dtype` as entry_plan() takes it.
  LatentDecoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                Context context, Tells tells = {}, CircularAxes circular = {});

  LatentDecoder(const LatentDecoder&) = delete;  // plans refer to it
  LatentDecoder& operator=(const LatentDecoder&) = delete;

  // f32 [N,H,W,3] in [-1,1] of f32 [N,h,w,c]. `progress` gets the share that is done, on the host
  // often; what it throws ends the work. Throws Error.
  Tensor decode(const Tensor& samples, const std::function<void(double)>& progress = {});

  // Sides of tiles, in latents, that an image [1,h,w,c] can be decoded in; the first one is the
  // whole image.
  static std::vector<int64_t> sides(const Shape& image);
  // What the plan of tiles of this side, at most, needs, 0: of the whole image; compiles it.
  PlanNeeds needs(const Shape& image, int64_t side = 0);
  // Tiles of a larger side are not used any more; 0: whole images are.
  void set_largest(int64_t side) { plans_.set_largest(side); }
  // Lets go of the device's memory until the next image.
  void release();

 private:
  LoadedComponent autoencoder_;
  LatentScaling scaling_;
  Context context_;
  DType dtype_;
  Tells tells_;
  TiledPlans plans_;
};

// The same as a stage of a pipeline.
Decoder latent_decoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                       Context context, LatentDecoder::Tells tells = {},
                       CircularAxes circular = {});

}  // namespace ebb
