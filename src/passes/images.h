// images: sums over the pixels of images and what is made of them become one piece of work.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. The statistics of a group norm, what they make of each channel and the formulas
// that take it become one `images` node; in its gradient the sums over the pixels, what they make
// of each channel, and the formula of the result; with either, further sums over the pixels of what
// is at hand, and the cheap formulas that made it. Where `serves` says that the device has a
// kernel. With `apart`, what made the images is not taken in from another layer, as in join_rows.
Graph join_images(const Graph& g, const std::function<bool(const Signature&)>& serves,
                  bool apart = false);

}  // namespace ebb
