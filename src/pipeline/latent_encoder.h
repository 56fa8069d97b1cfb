// Pixels to latents by an autoencoder.
#pragma once

#include <optional>

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
                CircularAxes tiling = {});

  // f32 [1,H,W,3] in [-1,1]; keeps the plan of the size that it encoded last. Throws Error.
  EncodedImage encode(const Tensor& pixels);

 private:
  LoadedComponent autoencoder_;
  LatentSpace space_;
  DType dtype_;
  Context context_;
  CircularAxes tiling_;
  std::optional<Plan> plan_;
  Shape size_;
};

}  // namespace ebb
