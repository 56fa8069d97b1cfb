#include "ops/matmul_act/op.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/normal_form.h"
#include "ops/gelu/op.h"
#include "ops/gelu_tanh/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"

namespace ebb::ops {

Expr activation_grad_of(const Expr& act) {
  const Scalar x[] = {Scalar::input(0)}, y[] = {Scalar::input(1)};
  return Expr(2, act.gradient(x, y));
}

namespace {

using Monomial = NormalForm::Monomial;
using Polynomial = NormalForm::Polynomial;

bool near(double x, double y) {  // not NaN
  constexpr double rounding = 1e-12;
  return std::fabs(x - y) <= rounding * std::fabs(y);
}

// An expression that may be an activation of input `x`, times what was divided out of it.
class ActivationForm {
 public:
  ActivationForm(const NormalForm& form, Polynomial p, int64_t x)
      : form_(form), p_(std::move(p)), x_(x) {}

  // x sigmoid(z); x/2 + x/2 tanh(z/2), which is the same; x/2 + x/2 erf(x / sqrt(2)).
  std::optional<Gate> gate() const {
    if (p_.size() == 1) return gated_by(ScalarOp::sigmoid, 1);
    const bool half = p_.size() == 2 && std::any_of(p_.begin(), p_.end(), [&](const auto& term) {
                        return is_power(term.first, 1) && near(term.second, 0.5);
                      });
    if (!half) return {};
    if (auto g = gated_by(ScalarOp::tanh, 0.5)) {
      g->linear *= 2;
      g->cubic *= 2;
      return g;
    }
    const auto g = gated_by(ScalarOp::erf, 0.5);
    if (!g || g->cubic != 0 || !near(g->linear, std::sqrt(0.5))) return {};
    return Gate{.erf = true};
  }

 private:
  bool is_power(const Monomial& m, int64_t of) const {
    if (m.size() != 1 || m.begin()->second != of) return false;
    const NormalForm::Atom& a = form_.atom(m.begin()->first);
    return a.op == ScalarOp::input && a.input == x_;
  }

  // If there is a term `coefficient` x f(linear x + cubic x^3).
  std::optional<Gate> gated_by(ScalarOp f, double coefficient) const {
    for (const auto& [m, c] : p_) {
      if (m.size() != 2 || !near(c, coefficient)) continue;
      std::optional<Gate> argument;
      bool linear = false;
      for (const auto& [index, power] : m) {
        linear = linear || is_power({{index, power}}, 1);
        const NormalForm::Atom& a = form_.atom(index);
        if (a.op == f && power == 1) argument = odd(a.arguments[0]);
      }
      if (linear && argument) return argument;
    }
    return {};
  }

  // Of linear x + cubic x^3.
  std::optional<Gate> odd(const Polynomial& p) const {
    Gate g{.linear = 0};
    for (const auto& [m, c] : p) {
      if (!is_power(m, 1) && !is_power(m, 3)) return {};
      (is_power(m, 1) ? g.linear : g.cubic) = c;
    }
    return g.linear != 0 && std::isfinite(g.linear) && std::isfinite(g.cubic) ? std::optional(g)
                                                                              : std::nullopt;
  }

  const NormalForm& form_;
  Polynomial p_;
  int64_t x_;
};

// The polynomial divided by input `x`, where that is a factor of every term once.
std::optional<Polynomial> divided(const NormalForm& form, int64_t x) {
  Polynomial out;
  for (const auto& [monomial, coefficient] : form.result()) {
    Monomial m = monomial;
    const auto factor = std::find_if(m.begin(), m.end(), [&](const auto& f) {
      const NormalForm::Atom& a = form.atom(f.first);
      return a.op == ScalarOp::input && a.input == x && f.second == 1;
    });
    if (factor == m.end()) return {};
    m.erase(factor);
    out[m] = coefficient;
  }
  return out;
}

}  // namespace

std::optional<Gate> gate_of(const Expr& act) {
  if (act.results().size() != 1 || act.inputs() < 1 || act.inputs() > 2) return {};
  const NormalForm form(act);
  if (act.inputs() == 1) return ActivationForm(form, form.result(), 0).gate();
  for (const int64_t x : {0, 1})
    if (auto alone = divided(form, 1 - x))
      if (auto g = ActivationForm(form, std::move(*alone), x).gate()) {
        g->of = static_cast<size_t>(x);
        return g;
      }
  return {};
}

Signature product_of(const Signature& s) {
  const auto& a = s.as<MatmulAct>();
  Signature p{&def::matmul(), Matmul{.trans_b = a.trans_b}, s.in, {}, s.at};
  require(!a.grad || !p.in.empty(), "matmul_act: takes y last  at ", s.at);
  if (a.grad) p.in.pop_back();
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
  require(s.in.size() < 3 + (a.grad ? 1 : 0) || s.in[2].shape.rank() == 1,
          "matmul_act: takes no residual  at ", s.at);
  require(!a.grad || !a.keep,
          "matmul_act: keeps no product that an activation gradient scales  at ", s.at);
  require(!a.grad || s.in.back() == z, "matmul_act: y must be ", z, " (got ", s.in.back(), ")  at ",
          s.at);
  require(halves == 1 || !a.grad, "matmul_act: takes activation gradients of one input  at ", s.at);
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
  if (a.grad) {
    const Value xy[] = {in.back(), z};
    return pointwise(g, {activation_grad_of(a.act), {}, dtype}, xy);
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
  c.flops += elements * (a.grad ? activation_grad_of(a.act) : a.act).flops();
  if (a.grad || a.keep) c.bytes += static_cast<double>(s.out[0].bytes());
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
  const auto grad = [](const Expr& act) { return MatmulAct{.act = act, .grad = true}; };
  std::vector<Example> all = {
      {.label = "silu",
       .attrs = MatmulAct{.act = silu, .trans_b = true},
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17})}},
      {.label = "batch", .attrs = MatmulAct{.act = gelu}, .in = {f32({2, 3, 7}), f32({2, 7, 16})}},
      {.label = "kept", .attrs = kept(gelu), .in = {f32({2, 9, 16}), f32({24, 16}), f32({24})}},
      {.label = "grad", .attrs = grad(gelu), .in = {f32({7, 13}), f32({13, 5}), f32({7, 5})}},
      {.label = "grad_bias",
       .attrs = MatmulAct{.act = silu, .trans_b = true, .grad = true},
       .in = {f32({3, 5, 16}), f32({24, 16}), f32({24}), f32({3, 5, 24})}},
      {.label = "empty", .attrs = kept(silu), .in = {f32({0, 3, 5}), f32({2, 5})}},
      {.label = "edges_kept",
       .attrs = kept(silu),
       .in = {f32({136, 200}), f32({264, 200}), f32({264})}},
      {.label = "edges_grad",
       .attrs = grad(gelu),
       .in = {f32({2, 68, 200}), f32({200, 264}), f32({2, 68, 264})}},
      {.label = "long_sum",  // split-K
       .attrs = kept(gelu),
       .in = {f32({40, 1032}), f32({24, 1032})}},
      {.label = "long_sum_grad",
       .attrs = grad(silu),
       .in = {f32({40, 1032}), f32({1032, 24}), f32({40, 24})}},
      {.label = "dit_mlp",
       .attrs = kept(gelu),
       .in = {f32({16, 256, 384}), f32({1536, 384}), f32({1536})},
       .bench = true},
      {.label = "dit_mlp_dx",
       .attrs = grad(gelu),
       .in = {f32({16, 256, 384}), f32({384, 1536}), f32({16, 256, 1536})},
       .bench = true},
      {.label = "erf",
       .attrs = kept(erf),
       .in = {f32({9, 16}), f32({24, 16}), f32({24})},
       .low = -2,
       .high = 2},
      {.label = "erf_grad",
       .attrs = grad(erf),
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
