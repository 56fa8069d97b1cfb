// What ops share whose expression gives results at different stages: one result of the expression
// with the inputs that it takes.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

struct OneResult {
  Expr expr;
  std::vector<size_t> in;  // inputs of the whole expression
  // Of the values of all inputs, those it takes.
  std::vector<Value> of(std::span<const Value> all) const;
};
OneResult one_result(const Expr& e, size_t result);

}  // namespace ebb::ops
