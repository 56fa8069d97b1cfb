// images: sums over the pixels of every channel, sums of these over groups of channels, expressions
// of both and of the same images, as one piece of work: a group norm, its gradient. Made by the
// pass `fuse_spatial`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/columns.h"
#include "ops/prim/parts.h"

namespace ebb::ops {

struct Images {
  // Takes the inputs, which broadcast to `shape`, then the totals. Gives the totals' terms, then
  // the outputs. A term may use the totals before its own.
  Expr expr;
  // What the terms are summed over, one each: pixels gives a number for each image and channel;
  // groups, of terms that do not change from pixel to pixel, one that the channels of a group
  // share.
  std::string totals;          // "pixels,groups"
  std::vector<int64_t> shape;  // [N,S...,C]
  int64_t groups = 1;          // equal parts of C
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  // What the outputs have a value for, one each: element [N,S...,C] or channel [N,1...,C].
  std::string per;
  Parts parts = {};  // of inputs that have `shape`, and of outputs with a value for each element
  Columns columns = {};  // of the inputs
  // The last so many outputs, all of channels and of one dtype, are one tensor [N,1...,beside*C],
  // side by side.
  int64_t beside = 0;
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("totals", totals);
    f("shape", shape);
    f("groups", groups);
    f("dtypes", dtypes);
    f("per", per);
    parts.fields(f);
    columns.fields(f);
    f("beside", beside);
  }
};

namespace def {
const OpDef& images();
}

// The same use with inputs and outputs that are whole tensors.
Signature whole_images(const Signature& images);

// Whether each total runs over pixels; else over groups. Throws Error on other words.
std::vector<bool> over_pixels(const Images& images);
// Whether each output has a value for each channel; else for each element.
std::vector<bool> per_channel(const Images& images);
// Whether a tensor, read at `shape`, changes from pixel to pixel.
bool varies_over_pixels(const Shape& tensor, const Shape& shape);

}  // namespace ebb::ops
