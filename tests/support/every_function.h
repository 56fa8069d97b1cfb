// An expression that has every function of Expr.
#pragma once

#include <span>
#include <vector>

#include "ir/expr_inputs.h"

namespace ebb::testing {

// Of three inputs, one result each; and a selection by a comparison.
inline Expr every_function() {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1), Scalar::input(2)};
  std::vector<Scalar> r;
  for (int op = static_cast<int>(ScalarOp::add); op <= static_cast<int>(ScalarOp::select); ++op) {
    const auto f = static_cast<ScalarOp>(op);
    r.push_back(scalar_of(f, std::span(x).first(static_cast<size_t>(info_of(f).arguments))));
  }
  r.push_back(select(less(x[0], x[1]), x[2], Scalar(2.0)));
  return Expr(3, r);
}

}  // namespace ebb::testing
