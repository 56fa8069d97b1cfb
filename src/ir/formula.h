// Formulas: expressions as people write them, "silu = x * sigmoid(x)" without the name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/expr.h"

namespace ebb {

// A formula of the inputs `names`, or several with commas between them, as an expression of as many
// results. Numbers; + - * / and ** with Python's precedence; < > <= >= == != give 1 or 0, and do
// not chain; parentheses; the functions of Scalar by name (exp, rsqrt, erf, ...), where(c, a, b)
// for select, min and max of two and more, and activations (ir/activations.h).
//
//   parse_formula("x * sigmoid(1.702 * x), y ** 2", {"x", "y"})
//
// Throws Error that names the column, from 1, and for an unknown name the nearest; also for texts
// of more than 4096 characters.
Expr parse_formula(std::string_view text, std::span<const std::string> names);

}  // namespace ebb
