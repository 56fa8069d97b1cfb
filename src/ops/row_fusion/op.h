// rows: sums along the last dim, expressions of them and of the same rows, and sums of these across
// rows, as one piece of work: a norm, its gradient, a softmax. Made by the pass `fuse_rows`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/columns.h"

namespace ebb::ops {

struct Rows {
  // Takes the inputs, which broadcast to `shape`, then the totals. Gives the totals' terms, then
  // the outputs. A term may use the totals before its own.
  Expr expr;
  std::string totals;          // what becomes of the terms of a row, one each: "sum,max"
  std::vector<int64_t> shape;  // [...,C]
  std::string dtypes;          // of the outputs, one each: "bf16,f32"
  // What the outputs have a value for, one each: element [...,T,C], row [...,T,1], or stripe
  // [...,T/stripe,C]: every column's sum over `stripe` rows, f32.
  std::string per;
  int64_t stripe = 0;    // divides T, the last but one of the dims
  Columns columns = {};  // of the inputs
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("totals", totals);
    f("shape", shape);
    f("dtypes", dtypes);
    f("per", per);
    f("stripe", stripe);
    columns.fields(f);
  }
};

namespace def {
const OpDef& rows();
}

// Whether each total is a maximum; else it is a sum. Throws Error on other words.
std::vector<bool> maxima_of(const Rows& rows);

enum class Per : uint8_t { element, row, stripe };
std::vector<Per> per_of(const Rows& rows);  // throws Error on other words

}  // namespace ebb::ops
