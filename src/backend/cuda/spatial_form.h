// Passes over images: sums over the pixels of every channel, sums of these over groups of channels,
// and what is made of both and of the images; what of that a thread does for every pixel and what
// once for a channel.
#pragma once

#include <vector>

#include "backend/cuda/segments.h"
#include "core/dtype.h"
#include "ir/expr.h"

namespace ebb::cuda {

// What a total runs over: a channel's pixels, or the channels of a group (its term is a number for
// each channel then, and so is it: the same for all of a group).
enum class SpatialReduction : uint8_t { pixels, groups };

// The expression takes the inputs, then the reductions; it gives the reductions' operands, then the
// outputs. A term may use the reductions before its own. Images are [images, pixels, channels] in
// memory.
struct SpatialForm {
  Expr expr;
  struct Input {
    DType dtype = DType::f32;
    bool streams = false;  // lies like the images; else it does not change from pixel to pixel
    int64_t image_stride = 0, channel_stride = 0;  // of what does not stream
    int first_pixel_of =
        -1;  // not an input of its own: what this one has at an image's first pixel
  };
  std::vector<Input> in;
  std::vector<SpatialReduction> reductions;
  std::vector<DType> out;
  std::vector<bool> per_channel;  // outputs [images, channels]; else like the images
  int64_t images = 1, pixels = 1, channels = 1, groups = 1;
  int64_t concatenated = 0;    // the last so many outputs, of channels, lie side by side
  SegmentsForm segments = {};  // of inputs that stream, of outputs like the images

  // From image to image of an output of channels.
  int64_t image_stride(size_t output) const {
    return output + static_cast<size_t>(concatenated) < out.size() || concatenated == 0
               ? channels
               : channels * concatenated;
  }
  int64_t group() const { return channels / groups; }  // channels of a group
};

// The same, but that variances, sums of (x - mean)^2, do not wait for the mean: the squares are of
// what is left of x without the value of its channel's first pixel, so that little cancels where
// the mean is large.
SpatialForm in_one_sweep(const SpatialForm& form);

// The expression, cut. The pixels are swept in phases 0, 1, ...; between them sums over pixels are
// completed, from which follow numbers for each channel: reductions, and what the pixels need of
// them.
struct SpatialWork {
  Expr element;  // inputs, then carried numbers -> terms of `pixel_reductions`, outputs of pixels
  Expr channel;  // inputs, then reductions -> terms of `group_reductions`, carried, outputs of
                 // channels
  std::vector<size_t> pixel_reductions, group_reductions, pixel_outputs, channel_outputs;
  std::vector<int> phase;  // of the pixel reductions: when they are summed
  // Of the reductions and of what is carried: the first phase by which it is known.
  std::vector<int> known, carried;
  int last = 0;  // the phase in which outputs are written
  // By input of `element`: whether a phase uses it.
  std::vector<bool> used_in(int p) const;
};
// Throws Error where a number for each channel would need the pixels.
SpatialWork cut(const SpatialForm& form);

}  // namespace ebb::cuda
