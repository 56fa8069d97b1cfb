#include "ir/expr_inputs.h"

namespace ebb {

std::vector<bool> inputs_of(const Expr& e, size_t first, size_t last) {
  std::vector<bool> needed(e.code().size()), used(static_cast<size_t>(e.inputs()));
  for (size_t k = first; k < last; ++k) needed[static_cast<size_t>(e.results()[k])] = true;
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const Expr::Instruction& c = e.code()[i];
    for (const int32_t a : {c.a, c.b, c.c})
      if (a >= 0) needed[static_cast<size_t>(a)] = true;
    if (c.op == ScalarOp::input) used[static_cast<size_t>(c.value)] = true;
  }
  return used;
}

}  // namespace ebb
