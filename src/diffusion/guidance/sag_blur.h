// sag_blur: what self-attention guidance blurs (Hong et al. 2022, arXiv:2210.00939). One evaluation
// with rule sag, of scale k after the rules before it (result r):
//
//   1. the network gives cond c and uncond u, both as data D(x, sigma), and of the unconditional
//      pass one self-attention map, that of the U-Net's middle;
//   2. sag_attention() sums the map up, enlarged to the latent; sag_blur() makes u' of u;
//   3. the network, without condition, at the state u' + (x - u), the noise of x on the blurred
//      data: s = D(u' + (x - u), sigma);
//   4. r + k (u' - s).
//
// u' is Branch::sag_input, s is Branch::sag. The blur is a Gaussian's of `size` by `size` weights
// with the sum 1, on an image that goes on mirrored about its border pixels. ComfyUI: size 9,
// deviation (blur_sigma) 2, k 0.5; diffusers: 9, 1, 0.75.
#pragma once

#include <span>
#include <vector>

#include "diffusion/guidance/sample.h"

namespace ebb {

struct SagBlur {
  int64_t size = 9;      // of the kernel, in pixels
  double sigma = 2;      // its standard deviation, in pixels
  double threshold = 1;  // attention above this is blurred; 1: above an even share
};

// Of a map f[heads, P, P] (rows: queries, each with the sum 1) over P = height * width places, what
// falls on every pixel of `shape`: over all queries the sum of the heads' mean attention to the
// nearest place. Its mean is 1.
struct SagMap {
  std::span<const float> attention;
  int64_t heads = 1, height = 1, width = 1;
};
std::vector<double> sag_attention(const SagMap& map, const GuidedShape& shape);

// Writes Branch::sag_input: one sample of the unconditional prediction, blurred in every pixel on
// which more attention than the threshold falls. `attention`: [H * W], of sag_attention().
void sag_blur(Values uncond, Values attention, const GuidedShape& shape, const SagBlur& how,
              std::span<double> out);

}  // namespace ebb
