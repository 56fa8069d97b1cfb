// Loops over pixels: reductions over the pixels of every channel, reductions of these over groups
// of channels, and elementwise results of both and of the images; and their partition into work per
// pixel and work per channel.
#pragma once

#include <vector>

#include "codegen/loops/segments.h"
#include "core/dtype.h"
#include "ir/expr.h"

namespace ebb::codegen {

// What a reduction runs over: the pixels of a channel, or the channels of a group (its operand and
// its result are per channel then; the result is the same for all channels of a group).
enum class PixelReduction : uint8_t { pixels, groups };

// The expression takes the inputs, then the reductions; it gives the reductions' operands, then the
// outputs. An operand may use earlier reductions. Images are [images, pixels, channels] in
// memory.
struct PixelForm {
  Expr expr;
  struct Input {
    DType dtype = DType::f32;
    bool streams = false;  // has pixels; otherwise constant over an image's pixels
    int64_t image_stride = 0, channel_stride = 0;  // if it does not stream
    int64_t begin = 0;                             // its first element in its tensor
    // Not an input itself: the value of this input at an image's first pixel.
    int first_pixel_of = -1;
  };
  std::vector<Input> in;
  std::vector<PixelReduction> reductions;
  std::vector<DType> out;
  std::vector<bool> per_channel;  // outputs [images, channels]; else like the images
  int64_t images = 1, pixels = 1, channels = 1, groups = 1;
  int64_t concatenated = 0;    // so many last outputs, per channel, are concatenated
  SegmentsForm segments = {};  // of inputs that stream, of outputs like the images
  bool unaligned = false;      // single elements only

  // The image stride of a per-channel output.
  int64_t image_stride(size_t output) const {
    return output + static_cast<size_t>(concatenated) < out.size() || concatenated == 0
               ? channels
               : channels * concatenated;
  }
  int64_t group() const { return channels / groups; }  // channels of a group
};

// The same with variances, sums of (x - mean)^2, in one sweep together with the mean: x is shifted
// by the value of its channel's first pixel, to avoid cancellation where the mean is large.
PixelForm in_one_sweep(const PixelForm& form);

// The partitioned expression. The pixels are swept in phases 0, 1, ...; between them reductions
// over pixels are completed, and values per channel are computed from them: further reductions, and
// what later phases need ("carried").
struct PixelWork {
  // Per pixel: inputs, then carried values -> operands of `pixel_reductions`, pixel outputs.
  Expr element;
  // Per channel: inputs, then reductions -> operands of `group_reductions`, carried, channel
  // outputs.
  Expr channel;
  std::vector<size_t> pixel_reductions, group_reductions, pixel_outputs, channel_outputs;
  std::vector<int> phase;  // of the pixel reductions
  // The first phase by which a reduction or carried value is known.
  std::vector<int> known, carried;
  int last = 0;  // the phase in which outputs are written
  // By input of `element`: whether a phase uses it.
  std::vector<bool> used_in(int p) const;
};
// Throws Error where a per-channel value would depend on pixels.
PixelWork partition(const PixelForm& form);

}  // namespace ebb::codegen
