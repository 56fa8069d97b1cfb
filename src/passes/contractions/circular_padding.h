// circular_padding: convolutions whose images go on at their opposite side, so that what a network
// makes can be laid side by side without a seam.
#pragma once

#include "ir/graph.h"

namespace ebb {

// Along which axes: x is the width of images [N,H,W,C].
struct CircularAxes {
  bool x = false, y = false;
  bool any() const { return x || y; }
  bool operator==(const CircularAxes&) const = default;
};

// On a graph as it was built. A convolution that pads both sides of such an axis alike, as layers
// of torch do by their option `padding`, reads its images with the columns or rows of the opposite
// side before and behind them, in place of zeros (torch's padding_mode 'circular'). Other padding
// stays. Throws Error where images are smaller than the padding.
Graph circular_padding(const Graph& g, CircularAxes axes);

}  // namespace ebb
