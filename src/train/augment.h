// Geometric augmentation of training images, given to the network as 9 labels, so that it does not
// leak into generated images (Karras et al. 2022, "Elucidating the design space of diffusion-based
// generative models", appendix F.2).
#pragma once

#include <array>
#include <cstdint>

#include "core/shape.h"

namespace ebb::train {

constexpr int64_t augment_labels = 9;

struct AugmentOptions {
  double p = 0;              // probability of each transform but the x-flip; 0: no augmentation
  double scale_std = 0.2;    // octaves
  double rotate = 1;         // largest angle, in half turns
  double aniso_std = 0.2;    // octaves
  double translate = 0.125;  // standard deviation, in image sides

  void fields(auto&& f) {
    f("p", p, "probability of each transform; the x-flip is drawn for every image; 0: off");
    f("scale_std", scale_std, "standard deviation of the scale, in octaves");
    f("rotate", rotate, "largest rotation, in half turns");
    f("aniso_std", aniso_std, "standard deviation of the stretch, in octaves");
    f("translate", translate, "standard deviation of the shift, in image sides");
  }
};

// Throws Error for values out of range.
void check(const AugmentOptions& options);

// One drawn transform. The picture is mirrored, scaled, turned, stretched along one axis and
// squeezed across it, and shifted.
struct Augmentation {
  bool flip_x = false, flip_y = false;
  double scale = 0;        // standard normal, 0: none; the picture grows by 2^(scale * scale_std)
  double angle = 0;        // radians
  double aniso = 0;        // standard normal; stretch 2^(aniso * aniso_std)
  double aniso_angle = 0;  // radians
  double shift_x = 0, shift_y = 0;  // standard normal; in units of `translate` image sides
};

// The transform of the image at `position` of the run: a function of (options, seed, position).
Augmentation draw_augmentation(const AugmentOptions& options, uint64_t seed, int64_t position);

// x-flip, y-flip, scale, cos(angle) - 1, sin(angle), aniso * (cos, sin)(aniso_angle), shift x, y.
// All 0: the unchanged image, as in sampling.
std::array<float, augment_labels> labels_of(const Augmentation& a);

// in, out: f32 [H,W,C], apart. Borders continue by reflection. Flips alone are exact. Otherwise
// the image is doubled in size by an orthonormal wavelet (symlet of 6 vanishing moments, Daubechies
// 1992), sampled bilinearly at twice the output's resolution and halved by the same wavelet: no
// aliasing down to half the size, and nothing changes when nothing moves.
void augment(const Augmentation& a, const AugmentOptions& options, const Shape& shape,
             const float* in, float* out);

}  // namespace ebb::train
