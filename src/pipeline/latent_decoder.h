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

  // f32 [N,H,W,3] in [-1,1] of f32 [N,h,w,c]. Throws Error.
  Tensor decode(const Tensor& samples);

  // Sides of tiles, in latents, that an image [1,h,w,c] can be decoded in; the first one is the
  // whole image.
  static std::vector<int64_t> sides(const Shape& image);
  // What a plan of such tiles needs; compiles it.
  PlanNeeds needs(const Shape& image, int64_t side);
  // Tiles of a larger side are not used any more; 0: whole images are.
  void set_largest(int64_t side);
  // Lets go of the device's memory until the next image.
  void release();

 private:
  void prepare(const Shape& image);

  LoadedComponent autoencoder_;
  LatentScaling scaling_;
  Context context_;
  DType dtype_;
  Tells tells_;
  CircularAxes circular_;
  SizedPlans plans_;
  int64_t largest_ = 0;
  Tiling tiling_;
  Shape size_;  // of the image that the tiling is for
};

// The same as a stage of a pipeline.
Decoder latent_decoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                       Context context, LatentDecoder::Tells tells = {},
                       CircularAxes circular = {});

}  // namespace ebb
