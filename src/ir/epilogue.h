// Epilogue: what a matmul or convolution computes of its products before they are rounded and
// written. docs/epilogues.md.
#pragma once

#include <vector>

#include "ir/expr.h"

namespace ebb {

// An expression over views of the products and of the operands, which are the inputs behind those
// that are multiplied. An operand has the result's shape, or a row [N,1,...,1,C] for each image, or
// is one row [C].
//
// The inputs of the expression: the products' columns in `parts` equal parts, then the operands in
// order; one that is as wide as the products is in parts too. The results: the op's first, as wide
// as a part; then, if any, all parts of another as wide as the products.
struct Epilogue final : TextValue {
  Epilogue() = default;
  Epilogue(Expr e, int64_t in_parts, std::vector<int64_t> from = {})
      : expr(std::move(e)), parts(in_parts), columns(std::move(from)) {}

  Expr expr;  // without results: the sum of the products and the operands
  int64_t parts = 1;
  std::vector<int64_t> columns;  // of the operands, which are read from there on; missing: 0

  bool is_sum() const { return expr.results().empty(); }
  bool keeps() const { return expr.results().size() > 1; }  // has a second result
  int64_t column(size_t operand) const { return operand < columns.size() ? columns[operand] : 0; }
  bool operator==(const Epilogue& e) const {
    return expr == e.expr && parts == e.parts && columns == e.columns;
  }

  std::string text() const override;  // "<...>[parts=2]", "<...>[columns=0,0,9]"; a sum: ""
  void parse(std::string_view text) override;
};

}  // namespace ebb
