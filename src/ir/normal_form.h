// NormalForm: an expression as a polynomial of its inputs and of functions of polynomials, so that
// expressions can be compared by their structure, whatever order they were written in.
#pragma once

#include <map>
#include <vector>

#include "ir/expr.h"

namespace ebb {

// Equal for expressions that differ by commutativity, associativity and distributivity, by division
// for multiplication, or by 1 / (1 + exp(-x)) for sigmoid(x). Terms of opposite sign never cancel,
// and nothing is reordered inside of other functions: what rounds or saturates on purpose stays.
class NormalForm {
 public:
  using Monomial = std::map<int32_t, int64_t>;    // index into atoms -> power; empty: a constant
  using Polynomial = std::map<Monomial, double>;  // -> coefficient
  struct Atom {
    ScalarOp op;  // an input, or a function that is not a polynomial
    int64_t input = -1;
    std::vector<Polynomial> arguments = {};
    bool operator==(const Atom&) const = default;
  };

  // Of an expression with one result.
  explicit NormalForm(const Expr& e);

  const Polynomial& result() const { return result_; }
  const Atom& atom(int32_t index) const { return atoms_[static_cast<size_t>(index)]; }
  const std::vector<Atom>& atoms() const { return atoms_; }

 private:
  Polynomial of(const Expr::Instruction& i, const std::vector<Polynomial>& x);
  Polynomial sum(const Polynomial& a, const Polynomial& b);
  Polynomial product(const Polynomial& a, const Polynomial& b);
  Polynomial quotient(const Polynomial& a, const Polynomial& b);
  Polynomial power(const Polynomial& a, const Polynomial& exponent);
  Polynomial atom(Atom a);

  std::vector<Atom> atoms_;  // each once
  Polynomial result_;
};

// Equal but for the rounding of coefficients to 64-bit floats.
bool near(const NormalForm& a, const NormalForm& b);
bool near(double a, double b);

}  // namespace ebb
