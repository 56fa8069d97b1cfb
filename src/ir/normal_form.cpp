#include "ir/normal_form.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "ir/expr_inputs.h"

namespace ebb {
namespace {

using Polynomial = NormalForm::Polynomial;

constexpr size_t most_terms = 64;  // a product with more is an atom

Polynomial constant(double v) { return {{{}, v}}; }

Polynomial scaled(Polynomial p, double by) {
  for (auto& [monomial, coefficient] : p) coefficient *= by;
  return p;
}

std::optional<double> constant_of(const Polynomial& p) {
  if (p.size() != 1 || !p.begin()->first.empty()) return {};
  return p.begin()->second;
}

// Adds a term, unless it would cancel what is there.
bool add_term(Polynomial& p, const NormalForm::Monomial& m, double coefficient) {
  const auto [it, fresh] = p.try_emplace(m, coefficient);
  if (fresh) return true;
  if (std::signbit(it->second) != std::signbit(coefficient)) return false;
  it->second += coefficient;
  return true;
}

}  // namespace

NormalForm::NormalForm(const Expr& e) {
  require(e.results().size() == 1, "expr: a normal form is of one result (got ", e.results().size(),
          ")");
  std::vector<Polynomial> values;
  for (const Expr::Instruction& i : e.code()) {
    std::vector<Polynomial> x;
    for (const int32_t a : arguments_of(i)) x.push_back(values[static_cast<size_t>(a)]);
    values.push_back(of(i, x));
  }
  result_ = values[static_cast<size_t>(e.results()[0])];
}

Polynomial NormalForm::of(const Expr::Instruction& i, const std::vector<Polynomial>& x) {
  switch (i.op) {
    case ScalarOp::input: return atom(Atom{i.op, static_cast<int64_t>(i.value)});
    case ScalarOp::constant: return constant(i.value);
    case ScalarOp::neg: return scaled(x[0], -1);
    case ScalarOp::add: return sum(x[0], x[1]);
    case ScalarOp::sub: return sum(x[0], scaled(x[1], -1));
    case ScalarOp::mul: return product(x[0], x[1]);
    case ScalarOp::div: return quotient(x[0], x[1]);
    case ScalarOp::pow: return power(x[0], x[1]);
    default: return atom(Atom{i.op, -1, x});
  }
}

Polynomial NormalForm::atom(Atom a) {
  const auto it = std::find(atoms_.begin(), atoms_.end(), a);
  const auto index = static_cast<int32_t>(it - atoms_.begin());
  if (it == atoms_.end()) atoms_.push_back(std::move(a));
  return {{{{index, 1}}, 1}};
}

Polynomial NormalForm::sum(const Polynomial& a, const Polynomial& b) {
  Polynomial out = a;
  for (const auto& [monomial, coefficient] : b)
    if (!add_term(out, monomial, coefficient)) return atom(Atom{ScalarOp::add, -1, {a, b}});
  return out;
}

Polynomial NormalForm::product(const Polynomial& a, const Polynomial& b) {
  const auto opaque = [&] { return atom(Atom{ScalarOp::mul, -1, {a, b}}); };
  if (a.size() * b.size() > most_terms) return opaque();
  Polynomial out;
  for (const auto& [m, x] : a)
    for (const auto& [n, y] : b) {
      Monomial both = m;
      for (const auto& [index, times] : n) both[index] += times;
      if (!add_term(out, both, x * y)) return opaque();
    }
  return out;
}

Polynomial NormalForm::quotient(const Polynomial& a, const Polynomial& b) {
  if (const auto by = constant_of(b)) return scaled(a, 1 / *by);
  if (const auto one = b.find({}); b.size() == 2 && one != b.end() && one->second == 1) {
    const auto& [m, coefficient] = *std::next(one);  // the constant comes first
    if (coefficient == 1 && m.size() == 1 && m.begin()->second == 1) {
      const Atom& e = atom(m.begin()->first);
      if (e.op == ScalarOp::exp)
        return product(a, atom(Atom{ScalarOp::sigmoid, -1, {scaled(e.arguments[0], -1)}}));
    }
  }
  return product(a, atom(Atom{ScalarOp::div, -1, {constant(1), b}}));
}

Polynomial NormalForm::power(const Polynomial& a, const Polynomial& exponent) {
  constexpr int largest = 4;
  const auto e = constant_of(exponent);
  for (int n = 1; n <= largest; ++n) {
    if (!e || *e != n) continue;
    Polynomial out = a;
    for (int i = 1; i < n; ++i) out = product(out, a);
    return out;
  }
  return atom(Atom{ScalarOp::pow, -1, {a, exponent}});
}

namespace {

// Compares polynomials of two forms, which number their atoms in other orders.
class Comparison {
 public:
  Comparison(const NormalForm& a, const NormalForm& b) : a_(a), b_(b) {}

  bool equal(const Polynomial& a, const Polynomial& b) const {
    return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& x) {
             return std::ranges::any_of(b, [&](const auto& y) {
               return near(x.second, y.second) && equal(x.first, y.first);
             });
           });
  }

 private:
  bool equal(const NormalForm::Monomial& a, const NormalForm::Monomial& b) const {
    return a.size() == b.size() && std::ranges::all_of(a, [&](const auto& x) {
             return std::ranges::any_of(b, [&](const auto& y) {
               return x.second == y.second && equal(a_.atom(x.first), b_.atom(y.first));
             });
           });
  }

  bool equal(const NormalForm::Atom& a, const NormalForm::Atom& b) const {
    if (a.op != b.op || a.input != b.input || a.arguments.size() != b.arguments.size())
      return false;
    for (size_t i = 0; i < a.arguments.size(); ++i)
      if (!equal(a.arguments[i], b.arguments[i])) return false;
    return true;
  }

  const NormalForm &a_, &b_;
};

}  // namespace

bool near(double a, double b) {  // not NaN
  constexpr double rounding = 1e-12;
  return std::fabs(a - b) <= rounding * std::fabs(b);
}

bool near(const NormalForm& a, const NormalForm& b) {
  return Comparison(a, b).equal(a.result(), b.result());
}

}  // namespace ebb
