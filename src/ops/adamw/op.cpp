#include "ops/adamw/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

// Inputs: p g m v lr c1 c2 clip [ema ema_decay].
std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 8 || s.in.size() == 10,
          "adamw: needs 8 inputs, or 10 with an average (got ", s.in.size(), ")  at ", s.at);
  const Shape& p = s.in[0].shape;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const bool scalar = (i >= 4 && i < 8) || i == 9;
    require(is_float(s.in[i].dtype) && s.in[i].shape == (scalar ? Shape{} : p),
            "adamw: p, g, m, v, ema must have one shape, the others none (input ", i, " is ",
            s.in[i], ")  p: ", s.in[0], "  at ", s.at);
  }
  std::vector<Type> out = {s.in[0], s.in[2], s.in[3]};
  if (s.in.size() == 10) out.push_back(s.in[8]);
  return out;
}

std::vector<Scalar> expression(const Signature& s, std::span<const Scalar> x) {
  const auto& a = s.as<AdamW>();
  const Scalar &p = x[0], &m = x[2], &v = x[3], &lr = x[4], &clip = x[7];
  const Scalar g = x[1] * clip, go = less(0.0, clip);
  const Scalar m1 = a.beta1 * m + (1 - a.beta1) * g;
  const Scalar v1 = a.beta2 * v + (1 - a.beta2) * (g * g);
  const Scalar decayed = p * (1.0 - lr * a.weight_decay);
  const Scalar p1 = decayed - lr * (m1 / x[5]) / (sqrt(v1 / x[6]) + a.eps);
  std::vector<Scalar> out = {select(go, p1, p), select(go, m1, m), select(go, v1, v)};
  if (x.size() == 10) out.push_back(select(go, moved_average(x[8], x[9], p1), x[8]));
  return out;
}

std::vector<Example> examples() {
  const Type p{DType::f32, {5, 13}}, one{DType::f32, {}};
  return {
      {.label = "plain",
       .attrs = AdamW{},
       .in = {p, p, p, p, one, one, one, one},
       .low = 0.1,
       .high = 1},
      {.label = "average",
       .attrs = AdamW{0.9, 0.95, 1e-6, 0.1},
       .in = {p, p, p, p, one, one, one, one, p, one},
       .low = 0.1,
       .high = 1},
      {.label = "skipped",
       .attrs = AdamW{},
       .in = {p, p, p, p, one, one, one, one},
       .low = -1,
       .high = -0.1},
  };
}

}  // namespace

const OpDef& def::adamw() {
  static const OpDef d{.name = "adamw",
                       .attrs = +[] { return Attrs(AdamW{}); },
                       .infer = infer,
                       .expr = expression,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

Scalar moved_average(const Scalar& ema, const Scalar& ema_decay, const Scalar& p) {
  return ema + (1.0 - ema_decay) * (p - ema);
}

AdamWResults adamw(const AdamWInputs& in, const AdamW& attrs) {
  std::vector<Value> args = {in.p, in.g, in.m, in.v, in.lr, in.c1, in.c2, in.clip};
  if (in.ema) args.insert(args.end(), {in.ema, in.ema_decay});
  const std::vector<Value> out = in.p.graph->add(def::adamw(), attrs, args);
  return {out[0], out[1], out[2], in.ema ? out[3] : Value{}};
}

}  // namespace ebb::ops
