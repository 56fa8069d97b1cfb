// spatial_fusion: sums over the pixels of every channel, sums of these over groups of channels,
// expressions of both and of the same images, as one piece of work: a group norm, its gradient.
// Made by the pass `fuse_spatial`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/segments.h"
#include "ops/prim/slices.h"

namespace ebb::ops {

struct SpatialFusion {
  // Takes the inputs, which broadcast to `shape`, then the reductions. Gives the reductions'
  // operands, then the outputs. An operand may use the reductions before its own.
  Expr expr;
  // What the terms are summed over, one each: pixels gives a number for each image and channel;
  // groups, of terms that do not change from pixel to pixel, one that the channels of a group
  // share.
  std::string reductions;      // "pixels,groups"
  std::vector<int64_t> shape;  // [N,S...,C]
  int64_t groups = 1;          // equal parts of C
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  // What the outputs have a value for, one each: element [N,S...,C] or channel [N,1...,C].
  std::string extents;
  Segments segments =
      {};              // of inputs that have `shape`, and of outputs with a value for each element
  Slices slices = {};  // of the inputs
  // The last so many outputs, all of channels and of one dtype, are one tensor [N,1...,beside*C],
  // side by side.
  int64_t concatenated = 0;
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("reductions", reductions);
    f("shape", shape);
    f("groups", groups);
    f("dtypes", dtypes);
    f("extents", extents);
    segments.fields(f);
    slices.fields(f);
    f("concatenated", concatenated);
  }
};

namespace def {
const OpDef& spatial_fusion();
}

// The same use with inputs and outputs that are whole tensors.
Signature unfused_views(const Signature& images);

// Whether each total runs over pixels; else over groups. Throws Error on other words.
std::vector<bool> over_pixels(const SpatialFusion& images);
// Whether each output has a value for each channel; else for each element.
std::vector<bool> per_channel(const SpatialFusion& images);
// Whether a tensor, read at `shape`, changes from pixel to pixel.
bool varies_over_pixels(const Shape& tensor, const Shape& shape);

}  // namespace ebb::ops
