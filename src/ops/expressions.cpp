#include "ops/expressions.h"

#include "ir/expr_inputs.h"

namespace ebb::ops {

std::vector<Value> OneResult::of(std::span<const Value> all) const {
  std::vector<Value> v;
  for (const size_t i : in) v.push_back(all[i]);
  return v;
}

OneResult one_result(const Expr& e, size_t result) {
  std::vector<Scalar> x = inputs_as_scalars(e);
  const Scalar whole[] = {e.apply(x)[result]};
  const Expr one(e.inputs(), whole);
  OneResult p;
  for (int64_t i = 0; i < e.inputs(); ++i)
    if (one.uses(i)) {
      x[static_cast<size_t>(i)] = Scalar::input(static_cast<int64_t>(p.in.size()));
      p.in.push_back(static_cast<size_t>(i));
    }
  const Scalar small[] = {one.apply(x)[0]};
  p.expr = Expr(static_cast<int64_t>(p.in.size()), small);
  return p;
}

}  // namespace ebb::ops
