// row_fusion: reductions along the last dim, expressions of them and of the same rows, and partial
// column reductions of these, in one kernel: a norm, its gradient, a softmax. Made by `fuse_rows`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/slices.h"

namespace ebb::ops {

struct RowFusion {
  // Takes the inputs, which broadcast to `shape`, then the reductions. Gives the reductions'
  // operands, then the outputs. An operand may use the reductions before its own.
  Expr expr;
  std::string reductions;      // of the operands along a row, one each: "sum,max"
  std::vector<int64_t> shape;  // [...,C]
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  // What the outputs have a value for, one each: element [...,T,C], row [...,T,1], or partial
  // [...,T/partial_rows,C]: a partial column reduction over `partial_rows` rows, f32.
  std::string extents;
  int64_t partial_rows = 0;  // divides T, the last but one of the dims
  Slices slices = {};        // of the inputs
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("reductions", reductions);
    f("shape", shape);
    f("dtypes", dtypes);
    f("extents", extents);
    f("partial_rows", partial_rows);
    slices.fields(f);
  }
};

namespace def {
const OpDef& row_fusion();
}

// Whether each total is a maximum; else it is a sum. Throws Error on other words.
std::vector<bool> maxima_of(const RowFusion& rows);

enum class Extent : uint8_t { element, row, partial };
std::vector<Extent> extents_of(const RowFusion& rows);  // throws Error on other words

}  // namespace ebb::ops
