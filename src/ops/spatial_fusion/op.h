// spatial_fusion: reductions over the pixels of every channel, reductions of these over groups of
// channels, expressions of both and of the same images, in one kernel: a group norm, its gradient.
// Made by the pass `fuse_spatial`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/segments.h"
#include "ops/prim/slices.h"

namespace ebb::ops {

struct SpatialFusion {
  // Inputs: those of the op, which broadcast to `shape`, then the reductions. Results: the
  // reductions' operands, then the outputs. An operand may use earlier reductions.
  Expr expr;
  // What each reduction runs over: pixels gives a value per image and channel; groups, of operands
  // without pixels, one value for all channels of a group.
  std::string reductions;      // "pixels,groups"
  std::vector<int64_t> shape;  // [N,S...,C]
  int64_t groups = 1;          // equal ranges of C
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  // The extent of each output: element [N,S...,C] or channel [N,1...,C].
  std::string extents;
  Segments segments = {};  // of inputs that have `shape`, and of outputs of extent element
  Slices slices = {};      // of the inputs
  // The last so many outputs, all of extent channel and of one dtype, are concatenated into one
  // tensor [N,1...,concatenated*C].
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

// The same signature without segments and slices.
Signature unfused_views(const Signature& images);

// Whether each total runs over pixels; else over groups. Throws Error on other words.
std::vector<bool> over_pixels(const SpatialFusion& images);
// Whether each output has a value for each channel; else for each element.
std::vector<bool> per_channel(const SpatialFusion& images);
// Whether a tensor, read at `shape`, changes from pixel to pixel.
bool varies_over_pixels(const Shape& tensor, const Shape& shape);

}  // namespace ebb::ops
