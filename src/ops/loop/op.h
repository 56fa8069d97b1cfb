// loop: one pass over an iteration space: expressions of its operands, reductions of them, and
// expressions of both, in one kernel: a norm, its gradient, a softmax, a residual sum of two halves
// of a tensor. Made by passes, never by layers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_field.h"
#include "base/list_of.h"
#include "base/optional_text.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/segments.h"
#include "ops/prim/slices.h"
#include "ops/prim/swaps.h"

namespace ebb::ops {

// A reduction of an operand, in f32.
struct LoopReduction {
  // row: the last `row_dims` dims. pixels: all dims but the first and the last. groups: of values
  // without pixels, the channels (last dim) of each group; all of a group see its value.
  enum class Over : uint8_t { row, pixels, groups };
  Over over = Over::row;
  ReduceKind kind = ReduceKind::sum;  // max: of rows alone
};
constexpr ValueNames<3> value_names(LoopReduction::Over) {
  return {"loop: reduced dims", {"row", "pixels", "groups"}};
}

// What a result has a value for, of an iteration space [...,T,R...] with rows R, or [N,S...,C].
enum class Extent : uint8_t {
  element,  // each element of the space
  row,      // each row: [...,T,1...]
  channel,  // each image and channel: [N,1...,C]
  partial,  // a partial column reduction over `partial_rows` rows: [...,T/partial_rows,R...], f32
};
constexpr ValueNames<4> value_names(Extent) {
  return {"loop: extent", {"element", "row", "channel", "partial"}};
}

struct LoopResult {
  DType dtype = DType::f32;
  Extent extent = Extent::element;
};

std::string text_of(const LoopReduction& r);               // "sum:pixels"
std::string text_of(const LoopResult& r);                  // "bf16:element"
void parse_text(LoopReduction& r, std::string_view text);  // throw Error
void parse_text(LoopResult& r, std::string_view text);

struct Loop {
  // Inputs: the operands, which broadcast to `shape`, then the reductions. Results: what is
  // reduced, then the results of the op. What is reduced may depend on the reductions before its
  // own.
  Expr expr;
  ListOf<LoopReduction> reductions;
  std::vector<int64_t> shape;  // the iteration space
  int64_t groups = 1;          // equal ranges of channels
  ListOf<LoopResult> results;
  int64_t partial_rows = 0;  // divides T
  // Of operands that have `shape` (at least along the dim), and of results of extent element.
  Segments segments = {};
  Slices slices = {};  // of the operands
  Swaps swaps = {};    // of the operands, as sliced and concatenated
  // The last so many results, all of one extent and dtype and without segments, are concatenated
  // along the last dim into one tensor [...,concatenated*C].
  int64_t concatenated = 0;
  // By operand, an earlier one that is the same tensor, or -1; []: there are none. What both read
  // is then read once. It says nothing that the values depend on.
  OptionalNumbers same = {};
  // The last dims that a row has: two where a norm over all heads meets what differs within a head.
  OptionalNumber<1> row_dims = {};
  void fields(auto&& f) {
    f("expr", expr);
    f("reductions", reductions);
    f("shape", shape);
    f("groups", groups);
    f("results", results);
    f("partial_rows", partial_rows);
    segments.fields(f);
    slices.fields(f);
    f("concatenated", concatenated);
    f("swapped", swaps);
    f("same", same);
    f("row_dims", row_dims);
  }
};

// What its reductions run over decides how a loop is computed.
enum class LoopKind : uint8_t {
  map,     // it has none: elements on their own
  rows,    // along the rows
  pixels,  // over the pixels of channels, and over groups of channels
};
LoopKind kind_of(const Loop& loop);  // throws Error for reductions of both kinds

namespace def {
const OpDef& loop();
}

// The shape of a result of this extent.
Shape shape_of(const Loop& loop, Extent extent);

// The same use without views: each operand and each result is one tensor.
Signature without_views(const Signature& s);

// A node as a loop: its attributes, or those of a pointwise node without views. None for other
// nodes.
std::optional<Loop> loop_of(const Graph& g, const Node& n);
bool is_loop(const Node& n, LoopKind kind);

// Whether a tensor changes along rows of the last `row_dims` dims.
bool varies_along_rows(const Shape& tensor, int64_t row_dims);
// Whether a tensor, read at `shape`, changes from pixel to pixel.
bool varies_over_pixels(const Shape& tensor, const Shape& shape);

std::vector<Example> loop_examples();

}  // namespace ebb::ops
