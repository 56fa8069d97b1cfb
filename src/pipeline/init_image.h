// Image to image: a run that starts from a picture, with a part of the noise.
#pragma once

#include <memory>
#include <string_view>

#include "core/tensor.h"
#include "pipeline/run_mode.h"

namespace ebb {

// How a picture of another size becomes one of the run's.
enum class FitRule : uint8_t {
  stretch,  // as A1111's "just resize" and diffusers
  crop,     // the middle, of the run's ratio
  fill,     // all of it, in the middle; its edges go on around it, as A1111's "resize and fill"
  latent,   // its latents are enlarged or made smaller, as A1111's "just resize (latent upscale)"
};
FitRule fit_rule(std::string_view name);  // throws Error

struct InitImage {
  Tensor picture;  // u8 [H,W,3]
  double strength =
      0.75;  // 0 to 1, how much of the noise comes back; plan_strength() has the rules
  bool exact_steps = false;  // A1111's option
  FitRule fit = FitRule::stretch;
};

// u8 [height,width,C] by Lanczos resampling; the picture itself if it has that size, and, of the
// rule `latent`, of any.
Tensor fitted(const Tensor& picture, ImageSize size, FitRule rule);
// The size of all of a picture within `size`, as A1111 and its ControlNet extension round it:
// down, and to nearest.
ImageSize size_within(const Tensor& picture, ImageSize size, bool to_nearest = false);
// f32 [1,H,W,C] in [-1,1] of u8 [H,W,C].
Tensor signed_pixels(const Tensor& picture);
// Of a run whose size nothing says, and what sizes must be multiples of: pixels.
ImageSize own_size(const LoadedModel& m);
int64_t pixel_multiple(const LoadedModel& m);
// The size of a run for a picture whose size is taken: rounded down to a multiple.
ImageSize size_of_run(const Tensor& picture, int64_t multiple);

// What it has beyond such a size is left out, below and to the right.
Tensor of_multiples(const Tensor& picture, int64_t multiple);

// Starts from `picture`, u8 of the size of the run, or of another one that the autoencoder takes,
// whose latents become as large as the run's (bilinear). As their programs do, the dialect
// diffusers samples the autoencoder's posterior, if its noise comes from one stream; others take
// its mean.
std::shared_ptr<const RunMode> init_mode(const Tensor& picture, const ResolvedRequest& request);

}  // namespace ebb
