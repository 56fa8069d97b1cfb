// What some of a formula's results depend on.
#pragma once

#include <vector>

#include "ir/expr.h"

namespace ebb {

// By input: whether one of the results [first, last) depends on it.
std::vector<bool> inputs_of(const Expr& e, size_t first, size_t last);

}  // namespace ebb
