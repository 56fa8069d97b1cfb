// rows: sums along the last dim, and formulas of them and of the same rows, as one piece of work: a
// norm, its gradient, a softmax. Made by the pass `join_rows`.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

struct Rows {
  // Takes the inputs, which broadcast to `shape`, then the totals. Gives the totals' terms, then
  // the outputs. A term may use the totals before its own.
  Expr expr;
  std::string totals;          // what becomes of the terms of a row, one each: "sum,max"
  std::vector<int64_t> shape;  // [...,C]
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  std::vector<int64_t> wide;   // of the outputs: 1: of `shape`; 0: one number a row, [...,1]
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("totals", totals);
    f("shape", shape);
    f("dtypes", dtypes);
    f("wide", wide);
  }
};

namespace def {
const OpDef& rows();
}

// Whether each total is a maximum; else it is a sum. Throws Error on other words.
std::vector<bool> maxima_of(const Rows& rows);

}  // namespace ebb::ops
