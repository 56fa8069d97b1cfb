// Tables of cosines and sines for rope, of positions in 1 to 4 dims, computed in double on the
// host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/shape.h"

namespace ebb::ops {

// An axis of positions: the index of a token, or the frame, row or column of a patch. Its `width`
// elements of a head are width / 2 pairs; pair i turns by position * theta^(-2 i / width).
struct RopeAxis {
  int64_t width = 0;  // even, may be 0
  double theta = 1e4;
  // Multiplies the positions: 1 / factor for position interpolation (Chen et al. 2023). NTK-aware
  // scaling by a factor is another theta: theta * factor^(width / (width - 2)).
  double scale = 1;
};

struct RopeTables {
  Shape shape;  // [T,P], P the pairs of all axes, one axis after the other
  std::vector<float> cos, sin;
};

// `positions`: T rows of one coordinate per axis. Angles are those of RoFormer (Su et al. 2021,
// equation 15) on each axis, concatenated along the pairs: for one axis transformers'
// LlamaRotaryEmbedding, for several diffusers' FluxPosEmbed. Throws Error for an odd or negative
// width, 0 or more than 4 axes, a theta or scale that is not positive, and incomplete rows.
RopeTables rope_tables(std::span<const RopeAxis> axes, std::span<const double> positions);

// Positions of a grid's cells in row-major order, with coordinates from `first` on (0 where it is
// empty): T rows of sizes.size() coordinates, for example {1, H, W} of an image.
std::vector<double> grid_positions(std::span<const int64_t> sizes,
                                   std::span<const double> first = {});

}  // namespace ebb::ops
