#include "ops/prim/activation.h"

#include <algorithm>
#include <cmath>

#include "ir/normal_form.h"

namespace ebb::ops {
namespace {

using Monomial = NormalForm::Monomial;
using Polynomial = NormalForm::Polynomial;

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

// 0.5 x (1 + f(argument)).
Scalar by_half(ScalarOp f, const Scalar& x, const Scalar& argument) {
  return 0.5 * x * (1 + Scalar::make(f, argument));
}

Scalar argument_of(const Gate& g, const Scalar& x) {
  return g.cubic == 0 ? g.linear * x : g.linear * x + g.cubic * (x * x * x);
}

// An activation of x that is written by a function of `argument`, if it is that of one.
std::optional<Scalar> activation_by(ScalarOp f, const Gate& argument, const Scalar& x) {
  switch (f) {
    case ScalarOp::sigmoid: return x * sigmoid(argument_of(argument, x));
    case ScalarOp::tanh: return by_half(f, x, argument_of(argument, x));
    case ScalarOp::erf: return by_half(f, x, argument_of(argument, x));
    default: return {};
  }
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

std::optional<Gate> gate_gradient_of(const Expr& e) {
  if (e.results().size() != 1 || e.inputs() != 2) return {};
  const NormalForm form(e);
  const Scalar x[] = {Scalar::input(1)}, dy[] = {Scalar::input(0)}, of[] = {Scalar::input(0)};
  for (const NormalForm::Atom& a : form.atoms()) {
    if (a.arguments.size() != 1) continue;
    const std::optional<Gate> argument = ActivationForm(form, {}, 1).odd(a.arguments[0]);
    if (!argument) continue;
    const std::optional<Scalar> y = activation_by(a.op, *argument, of[0]);
    const std::optional<Gate> g = y ? gate_of(Expr(1, {&*y, 1})) : std::nullopt;
    if (!g) continue;
    const std::vector<Scalar> gradient = Expr(1, {&*y, 1}).gradient(x, dy);
    if (near(form, NormalForm(Expr(2, gradient)))) return g;
  }
  return {};
}

Scalar activated(const Gate& g, const Scalar& x) {
  if (g.erf) return by_half(ScalarOp::erf, x, std::sqrt(0.5) * x);
  return x * sigmoid(argument_of(g, x));
}

}  // namespace ebb::ops
