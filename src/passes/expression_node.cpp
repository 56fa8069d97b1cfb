#include "passes/expression_node.h"

#include <algorithm>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ir/loop_form.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"

namespace ebb {
namespace {

// What an op that only reduces writes into a loop: the operands of its reductions.
class ReducedOperands : public LoopReductions {
 public:
  Scalar reduced(const Scalar& operand) override {
    of_each.push_back(operand);
    return operand;
  }
  Scalar group_sum(const Scalar&) override { fail("an op that only reduces has no groups"); }

  std::vector<Scalar> of_each;
};

Expr scaled(const Expr& e, double factor) {
  if (factor == 1) return e;
  std::vector<Scalar> results = e.apply(inputs_as_scalars(e));
  for (Scalar& y : results) y = y * Scalar(factor);
  return Expr(e.inputs(), results);
}

}  // namespace

void ExpressionNode::drop_unused_operands() {
  std::vector<int32_t> used;
  std::vector<Scalar> x;
  for (size_t k = 0; k < in.size(); ++k) {
    const bool is_used = expr.uses(static_cast<int64_t>(k));
    x.push_back(is_used ? Scalar::input(static_cast<int64_t>(used.size())) : Scalar(0.0));
    if (is_used) used.push_back(in[k]);
  }
  if (used.size() == in.size()) return;
  expr = Expr(static_cast<int64_t>(used.size()), expr.apply(x));
  in = std::move(used);
}

Node ExpressionNode::node() const {
  if (!reduction)
    return {&ops::def::pointwise(), ops::Pointwise{expr, space.sizes(), dtypes}, in, out, at};
  const auto kind = reduction->maximum ? ops::ReduceKind::max : ops::ReduceKind::sum;
  const bool wide = std::ranges::all_of(dtypes, [](DType d) { return d == DType::f32; });
  return {&ops::def::reduce(),
          ops::Reduce{expr, reduction->dims, kind, reduction->scale, space.sizes(),
                      wide ? ResultDTypes() : dtypes},
          in, out, at};
}

std::optional<ExpressionNode> expression_node_of(const Graph& g, const Node& n) {
  if (!is_elementwise(n) && !n.op->loop) return {};
  const Signature s = g.signature(n);
  ExpressionNode e{.in = n.in, .out = n.out, .at = n.at};
  for (const Type& t : s.out) e.dtypes.push_back(t.dtype);
  if (is_elementwise(n)) {
    e.expr = expression_of(s);
    e.space = s.out[0].shape;
    return e;
  }
  const std::optional<LoopForm> form = n.op->loop(s);
  if (!form || !form->only_reduces) return {};
  ReducedOperands operands;
  const auto inputs = static_cast<int64_t>(n.in.size());
  form->write(s, inputs_as_scalars(inputs), operands);
  e.expr = Expr(inputs, operands.of_each);
  e.space = form->space;
  const bool of_one = std::ranges::all_of(form->dims, [&](int64_t d) { return e.space[d] == 1; });
  if (of_one)
    e.expr = form->maximum ? e.expr : scaled(e.expr, form->scale);
  else
    e.reduction = Reduction{form->dims, form->maximum, form->scale};
  return e;
}

Expr expression_of(const Graph& g, const Node& n) { return expression_of(g.signature(n)); }

}  // namespace ebb
