#include "ops/matmul_act/op.h"

#include <cmath>

#include "base/error.h"
#include "ops/gelu_tanh/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/silu/op.h"

namespace ebb::ops {

Expr slope_of(const Expr& act) {
  const Scalar x[] = {Scalar::input(0)}, y[] = {Scalar::input(1)};
  return Expr(2, act.gradient(x, y));
}

std::optional<Gate> gate_of(const Expr& act) {
  if (act.inputs() != 1 || act.results().size() != 1) return {};
  const auto at = [&](double x) {
    double y = 0;
    act.evaluate({&x, 1}, {&y, 1});
    return y;
  };
  // what the gate is the logistic function of, by its inverse
  const auto argument = [&](double x) { return -std::log(x / at(x) - 1); };
  const double one = argument(1), two = argument(2);
  Gate g{.linear = 0, .cubic = (two - 2 * one) / 6};
  g.linear = one - g.cubic;
  constexpr double rounding = 1e-12, far = 8;
  if (std::fabs(g.cubic) < rounding * std::fabs(g.linear)) g.cubic = 0;
  for (double x = -far; x <= far; x += 0.25) {
    const double y = x / (1 + std::exp(-x * (g.linear + g.cubic * x * x)));
    if (!(std::fabs(y - at(x)) <= rounding * (1 + std::fabs(x)))) return {};  // NaN too
  }
  return g;
}

Signature product_of(const Signature& s) {
  const auto& a = s.as<MatmulAct>();
  Signature p{&def::matmul(), Matmul{.trans_b = a.trans_b}, s.in, {}, s.at};
  require(!a.slope || !p.in.empty(), "matmul_act: takes y last  at ", s.at);
  if (a.slope) p.in.pop_back();
  require(p.in.size() <= 3, "matmul_act: takes a, b and bias (got ", p.in.size(), " inputs)  at ",
          s.at);
  p.out = p.op->infer(p);
  return p;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<MatmulAct>();
  require(a.act.inputs() == 1 && a.act.results().size() == 1,
          "matmul_act: act must be a formula of one input (got ", a.act.text(), ")  at ", s.at);
  const Type z = product_of(s).out[0];
  require(s.in.size() < 3 + (a.slope ? 1 : 0) || s.in[2].shape.rank() == 1,
          "matmul_act: takes no addend  at ", s.at);
  require(!a.slope || !a.keep, "matmul_act: keeps no product that a slope scales  at ", s.at);
  require(!a.slope || s.in.back() == z, "matmul_act: y must be ", z, " (got ", s.in.back(),
          ")  at ", s.at);
  return a.keep ? std::vector<Type>{z, z} : std::vector<Type>{z};
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<MatmulAct>();
  const Signature product = product_of(s);
  const Value z = g.add(*product.op, product.attrs, in.first(product.in.size()))[0];
  const std::string dtype(name_of(s.out[0].dtype));
  if (a.slope) {
    const Value xy[] = {in.back(), z};
    return pointwise(g, {slope_of(a.act), {}, dtype}, xy);
  }
  const Value x[] = {z};
  std::vector<Value> out = pointwise(g, {a.act, {}, dtype}, x);
  if (a.keep) out.push_back(z);
  return out;
}

Cost cost(const Signature& s) {
  Cost c = cost_of(product_of(s));
  const auto& a = s.as<MatmulAct>();
  const auto elements = static_cast<double>(s.out[0].shape.numel());
  c.flops += elements * (a.slope ? slope_of(a.act) : a.act).flops();
  if (s.in.size() + s.out.size() > product_of(s).in.size() + 1)
    c.bytes += static_cast<double>(s.out[0].bytes());
  return c;
}

// The formula of a pointwise op.
Expr act_of(const OpDef& op) {
  return formula_of(Signature{&op, {}, {{DType::f32, {}}}, {{DType::f32, {}}}, ""});
}

std::vector<Example> examples() {
  const Expr silu = act_of(def::silu()), gelu = act_of(def::gelu_tanh());
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto kept = [](const Expr& act) {
    return MatmulAct{.act = act, .trans_b = true, .keep = true};
  };
  const auto slope = [](const Expr& act) { return MatmulAct{.act = act, .slope = true}; };
  return {
      {.label = "silu",
       .attrs = MatmulAct{.act = silu, .trans_b = true},
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17})}},
      {.label = "batch", .attrs = MatmulAct{.act = gelu}, .in = {f32({2, 3, 7}), f32({2, 7, 16})}},
      {.label = "kept", .attrs = kept(gelu), .in = {f32({2, 9, 16}), f32({24, 16}), f32({24})}},
      {.label = "slope", .attrs = slope(gelu), .in = {f32({7, 13}), f32({13, 5}), f32({7, 5})}},
      {.label = "slope_bias",
       .attrs = MatmulAct{.act = silu, .trans_b = true, .slope = true},
       .in = {f32({3, 5, 16}), f32({24, 16}), f32({24}), f32({3, 5, 24})}},
      {.label = "empty", .attrs = kept(silu), .in = {f32({0, 3, 5}), f32({2, 5})}},
      {.label = "edges_kept",
       .attrs = kept(silu),
       .in = {f32({136, 200}), f32({264, 200}), f32({264})}},
      {.label = "edges_slope",
       .attrs = slope(gelu),
       .in = {f32({2, 68, 200}), f32({200, 264}), f32({2, 68, 264})}},
      {.label = "long_sum",  // parts of k
       .attrs = kept(gelu),
       .in = {f32({40, 1032}), f32({24, 1032})}},
      {.label = "long_sum_slope",
       .attrs = slope(silu),
       .in = {f32({40, 1032}), f32({1032, 24}), f32({40, 24})}},
      {.label = "dit_mlp",
       .attrs = kept(gelu),
       .in = {f32({16, 256, 384}), f32({1536, 384}), f32({1536})},
       .bench = true},
      {.label = "dit_mlp_dx",
       .attrs = slope(gelu),
       .in = {f32({16, 256, 384}), f32({384, 1536}), f32({16, 256, 1536})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::matmul_act() {
  static const OpDef d{.name = "matmul_act",
                       .attrs = +[] { return Attrs(MatmulAct{.act = act_of(def::silu())}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .operands = 2};
  return d;
}

}  // namespace ebb::ops
