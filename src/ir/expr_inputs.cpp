#include "ir/expr_inputs.h"

namespace ebb {

std::vector<bool> inputs_of(const Expr& e, size_t first, size_t last) {
  std::vector<bool> needed(e.code().size()), used(static_cast<size_t>(e.inputs()));
  for (size_t k = first; k < last; ++k) needed[static_cast<size_t>(e.results()[k])] = true;
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const Expr::Instruction& c = e.code()[i];
    for (const int32_t a : arguments_of(c)) needed[static_cast<size_t>(a)] = true;
    if (c.op == ScalarOp::input) used[static_cast<size_t>(c.value)] = true;
  }
  return used;
}

std::vector<Scalar> inputs_as_scalars(int64_t count) {
  std::vector<Scalar> x;
  for (int64_t i = 0; i < count; ++i) x.push_back(Scalar::input(i));
  return x;
}
std::vector<Scalar> inputs_as_scalars(const Expr& e) { return inputs_as_scalars(e.inputs()); }

std::vector<int32_t> arguments_of(const Expr::Instruction& i) {
  std::vector<int32_t> all = {i.a, i.b, i.c};
  all.resize(static_cast<size_t>(info_of(i.op).arguments));
  return all;
}

Scalar scalar_of(ScalarOp op, std::span<const Scalar> x) {
  return x.size() == 1   ? Scalar::make(op, x[0])
         : x.size() == 2 ? Scalar::make(op, x[0], x[1])
                         : Scalar::make(op, x[0], x[1], x[2]);
}

}  // namespace ebb
