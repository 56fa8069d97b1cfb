// Images too large for one evaluation: a function is evaluated on overlapping tiles, and what it
// gives is blended. Exact where every result depends on inputs within `margin` of it; the norms and
// the attention of an autoencoder see the whole of their tile, so that its colours may differ.
#pragma once

#include <cstdint>
#include <functional>

#include "core/tensor.h"
#include "passes/contractions/circular_padding.h"

namespace ebb {

// In pixels (latents) of the input.
struct Tiling {
  int64_t tile = 64;     // side; images that are smaller have smaller tiles
  int64_t overlap = 16;  // of neighbours, at least
  int64_t margin = 4;    // at the sides of a tile, but those of the image: not used
  int64_t multiple = 1;  // tiles begin at multiples of this; of the image's sides, too
  // Along which the image goes on at its opposite side: tiles lie across these seams as well.
  CircularAxes circular = {};
};

// Of every tile of such an image [N,H,W,C]: one plan serves all.
Shape tile_shape(const Shape& image, const Tiling& tiling);
// How many there are.
int64_t tile_count(const Shape& image, const Tiling& tiling);

// f(tile) is f32 [N,k h,k w,C'] of a tile [N,h,w,C], or [N,h/k,w/k,C'], with the same k for all;
// then k must divide all of the tiling. Results fade into each other, by weights that are linear
// over what is left of the overlap. Throws Error.
Tensor in_tiles(const Tensor& image, const Tiling& tiling,
                const std::function<Tensor(const Tensor& tile)>& f);

}  // namespace ebb
