// The patch discriminator of pix2pix (Isola et al. 2017, arXiv:1611.07004, section 3.2.2 and
// appendix 6.1.2): convolutions 4x4 that tell made pictures from real ones, patch by patch.
#pragma once

#include <cstdint>

#include "nn/params.h"

namespace ebb::nn {

// Its smallest picture: of a smaller one no patch is left.
inline constexpr int64_t least_discriminated_side = 24;
// `channels`, those of the first layer, are a multiple of this.
inline constexpr int64_t discriminator_channels_step = 16;

// x [N,H,W,C] -> scores [N,H/8-2,W/8-2,1], each of a patch of 70x70 pixels: high where the picture
// looks real. Strides 2, 2, 2, 1, 1 and `channels` times 1, 2, 4, 8 channels, leaky ReLU (0.2)
// between. The norms are group norms of 32 groups, not pix2pix's batch norms: they keep no
// statistics, and the scores of a picture depend on no other picture of its batch, so that any
// batch, in any parts, gives the same. Weights begin normal with deviation 0.02. Throws Error for
// smaller sides than least_discriminated_side.
Value patch_discriminator(const Params& p, Value x, int64_t channels);

}  // namespace ebb::nn
