#include "ops/matmul_act/op.h"

#include <array>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "ops/gelu/op.h"
#include "ops/gelu_tanh/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"

namespace ebb::ops {

Expr slope_of(const Expr& act) {
  const Scalar x[] = {Scalar::input(0)}, y[] = {Scalar::input(1)};
  return Expr(2, act.gradient(x, y));
}

namespace {

constexpr double far = 8, step = 0.25;  // where expressions are compared
bool equal(double x, double y) {        // not NaN
  constexpr double rounding = 1e-12;
  return std::fabs(x - y) <= rounding * (1 + std::fabs(y));
}

double value_of(const Expr& e, std::initializer_list<double> x) {
  double y = 0;
  e.evaluate(x, {&y, 1});
  return y;
}

// GELU with an error function.
double gelu_of(double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }

// Of one input.
std::optional<Gate> activation_of(const Expr& act) {
  const auto all_equal = [&](const std::function<double(double)>& f) {
    for (double x = -far; x <= far; x += step)
      if (!equal(f(x), value_of(act, {x}))) return false;
    return true;
  };
  if (all_equal(gelu_of)) return Gate{.erf = true};
  // what the gate is the logistic function of, by its inverse
  const auto argument = [&](double x) { return -std::log(x / value_of(act, {x}) - 1); };
  const double one = argument(1), two = argument(2);
  Gate g{.linear = 0, .cubic = (two - 2 * one) / 6};
  g.linear = one - g.cubic;
  if (equal(1 + std::fabs(g.cubic / g.linear), 1)) g.cubic = 0;
  const auto gated = [&](double x) {
    return x / (1 + std::exp(-x * (g.linear + g.cubic * x * x)));
  };
  return all_equal(gated) ? std::optional(g) : std::nullopt;
}

// Of two inputs, as if input `of` were activated.
std::optional<Gate> gate_by(const Expr& act, size_t of) {
  std::array<Scalar, 2> in{1, 1};
  in[of] = Scalar::input(0);
  const Expr alone(1, act.apply(in));
  std::optional<Gate> g = activation_of(alone);
  for (double x = -far; x <= far; x += step)
    for (const double by : {-3.0, -0.7, 0.0, 2.0}) {
      const double y = of == 0 ? value_of(act, {x, by}) : value_of(act, {by, x});
      if (!equal(by * value_of(alone, {x}), y)) return {};
    }
  if (g) g->of = of;
  return g;
}

}  // namespace

std::optional<Gate> gate_of(const Expr& act) {
  if (act.results().size() != 1) return {};
  if (act.inputs() == 1) return activation_of(act);
  if (act.inputs() != 2) return {};
  const std::optional<Gate> first = gate_by(act, 0);
  return first ? first : gate_by(act, 1);
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
  const int64_t halves = a.act.inputs();
  require((halves == 1 || halves == 2) && a.act.results().size() == 1,
          "matmul_act: act must be an expression of one input or two (got ", a.act.text(), ")  at ",
          s.at);
  const Type z = product_of(s).out[0];
  require(s.in.size() < 3 + (a.slope ? 1 : 0) || s.in[2].shape.rank() == 1,
          "matmul_act: takes no addend  at ", s.at);
  require(!a.slope || !a.keep, "matmul_act: keeps no product that a slope scales  at ", s.at);
  require(!a.slope || s.in.back() == z, "matmul_act: y must be ", z, " (got ", s.in.back(),
          ")  at ", s.at);
  require(halves == 1 || !a.slope, "matmul_act: takes slopes of one input  at ", s.at);
  require(z.shape[-1] % halves == 0, "matmul_act: ", z.shape[-1], " columns have no halves  at ",
          s.at);
  Type out = z;
  out.shape[-1] /= halves;
  return a.keep ? std::vector<Type>{out, z} : std::vector<Type>{out};
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
  const std::vector<Value> x = a.act.inputs() == 2 ? split(z, -1, 2) : std::vector{z};
  std::vector<Value> out = pointwise(g, {a.act, {}, dtype}, x);
  if (a.keep) out.push_back(z);
  return out;
}

Cost cost(const Signature& s) {
  const Signature product = product_of(s);
  Cost c = cost_of(product);
  const auto& a = s.as<MatmulAct>();
  const auto elements = static_cast<double>(s.out[0].shape.numel());
  c.flops += elements * (a.slope ? slope_of(a.act) : a.act).flops();
  if (a.slope || a.keep) c.bytes += static_cast<double>(s.out[0].bytes());
  if (a.act.inputs() == 2 && !a.keep)
    c.bytes -= static_cast<double>(product.out[0].bytes() - s.out[0].bytes());
  return c;
}

// The expression of a pointwise op.
Expr act_of(const OpDef& op) {
  return expression_of(Signature{&op, {}, {{DType::f32, {}}}, {{DType::f32, {}}}, ""});
}

// x0 act(x1), or x1 act(x0).
Expr expression_of_gate(const OpDef& act, size_t of) {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)};
  const Scalar y[] = {x[1 - of] * act_of(act).apply({&x[of], 1})[0]};
  return Expr(2, y);
}

std::vector<Example> gates() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Expr geglu = expression_of_gate(def::gelu(), 1),
             swiglu = expression_of_gate(def::silu(), 0);
  const auto gate = [](const Expr& act, bool keep = false) {
    return MatmulAct{.act = act, .trans_b = true, .keep = keep};
  };
  return {
      {.label = "geglu", .attrs = gate(geglu), .in = {f32({3, 5, 11}), f32({34, 11}), f32({34})}},
      {.label = "swiglu", .attrs = gate(swiglu), .in = {f32({9, 16}), f32({48, 16})}},
      {.label = "gate_tanh",
       .attrs = gate(expression_of_gate(def::gelu_tanh(), 1), true),
       .in = {f32({2, 9, 16}), f32({16, 16}), f32({16})}},
      {.label = "gate_columns",
       .attrs = MatmulAct{.act = swiglu},
       .in = {f32({7, 13}), f32({13, 10})}},
      {.label = "gate_batch",
       .attrs = MatmulAct{.act = geglu},
       .in = {f32({2, 3, 7}), f32({2, 7, 16})}},
      {.label = "gate_one", .attrs = gate(geglu), .in = {f32({1, 8}), f32({2, 8}), f32({2})}},
      {.label = "gate_empty", .attrs = gate(geglu, true), .in = {f32({0, 3, 5}), f32({4, 5})}},
      {.label = "edges_gate",  // more rows than go at once through a pass behind the product
       .attrs = gate(geglu),
       .in = {f32({320, 200}), f32({272, 200}), f32({272})}},
      {.label = "edges_gate_kept",
       .attrs = gate(swiglu, true),
       .in = {f32({2, 68, 200}), f32({272, 200}), f32({272})}},
      {.label = "sdxl_geglu",
       .attrs = gate(geglu),
       .in = {f32({2, 4096, 1280}), f32({10240, 1280}), f32({10240})},
       .bench = true},
      {.label = "sdxl_geglu_640",
       .attrs = gate(geglu),
       .in = {f32({2, 4096, 640}), f32({5120, 640}), f32({5120})},
       .bench = true},
      {.label = "swiglu_1152",
       .attrs = gate(swiglu),
       .in = {f32({64, 256, 1152}), f32({6144, 1152}), f32({6144})},
       .bench = true},
  };
}

std::vector<Example> examples() {
  const Expr silu = act_of(def::silu()), gelu = act_of(def::gelu_tanh());
  const Expr erf = act_of(def::gelu());
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto kept = [](const Expr& act) {
    return MatmulAct{.act = act, .trans_b = true, .keep = true};
  };
  const auto slope = [](const Expr& act) { return MatmulAct{.act = act, .slope = true}; };
  std::vector<Example> all = {
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
      {.label = "erf",
       .attrs = kept(erf),
       .in = {f32({9, 16}), f32({24, 16}), f32({24})},
       .low = -2,
       .high = 2},
      {.label = "erf_slope",
       .attrs = slope(erf),
       .in = {f32({9, 16}), f32({16, 24}), f32({9, 24})},
       .low = -4,
       .high = 4},
  };
  for (Example& e : gates()) all.push_back(std::move(e));
  return all;
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
