// sag_blur: what self-attention guidance blurs (Hong et al. 2022, arXiv:2210.00939).
#pragma once

#include "diffusion/guidance/sample.h"

namespace ebb {

struct SagBlur {
  int64_t size = 9;      // of the kernel, in pixels
  double sigma = 2;      // its standard deviation
  double threshold = 1;  // attention above this is blurred
};

// Writes Ask::sag_input: one sample of the unconditional prediction, blurred in every pixel on
// which more attention than the threshold falls. `attention` [H * W]: over all queries, the sum of
// the heads' mean attention to the pixel, in a self-attention map of the unconditional pass.
void sag_blur(Values uncond, Values attention, const GuidedShape& shape, const SagBlur& how,
              std::span<double> out);

}  // namespace ebb
