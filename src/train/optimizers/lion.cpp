// Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2): the sign of an interpolation of momentum
// and gradient. One state in place of Adam's two.
//
//   g' = clip g
//   p' = p - lr (sign(beta1 m + (1 - beta1) g') + weight_decay p)
//   m' = beta2 m + (1 - beta2) g'
//
// All elements move by lr: a third to a tenth of AdamW's learning rate, and as much more weight
// decay (section 5 there).
#include "ir/expr_inputs.h"
#include "ops/adamw/op.h"
#include "ops/prim/pointwise/op.h"
#include "train/optimizer.h"

namespace ebb::train::optimizers {
namespace {

Scalar sign(const Scalar& x) { return select(less(0.0, x), 1.0, select(less(x, 0.0), -1.0, 0.0)); }

Updated update(const UpdateInputs& in) {
  const OptimizerSettings& s = in.settings;
  std::vector<Value> args = {in.p, in.g, in.states[0], in.lr, in.clip};
  if (in.ema) args.insert(args.end(), {in.ema, in.ema_decay});
  const auto inputs = static_cast<int64_t>(args.size());
  const std::vector<Scalar> x = inputs_as_scalars(inputs);
  const Scalar &p = x[0], &m = x[2], &lr = x[3], &clip = x[4];
  const Scalar g = clip * x[1], go = less(0.0, clip);
  const Scalar direction = sign(s.beta1 * m + (1 - s.beta1) * g);
  const Scalar p1 = p - lr * (direction + s.weight_decay * p);
  std::vector<Scalar> results = {select(go, p1, p), select(go, s.beta2 * m + (1 - s.beta2) * g, m)};
  if (in.ema) results.push_back(select(go, ops::moved_average(x[5], x[6], p1), x[5]));
  const std::vector<Value> out = ops::pointwise(*in.p.graph, {.expr = Expr(inputs, results)}, args);
  return {out[0], {out[1]}, in.ema ? out[2] : Value{}};
}

}  // namespace

const Optimizer& lion() {
  static const Optimizer o{.name = "lion",
                           .help = "the sign of a momentum: one state, and steps of one size",
                           .reads = {"beta1", "beta2"},
                           .beta2 = 0.99,
                           .states = {{"m."}},
                           .update = update};
  return o;
}

}  // namespace ebb::train::optimizers
