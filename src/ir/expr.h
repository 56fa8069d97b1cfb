// Expr: a scalar expression, the semantics of every pointwise op. It has three consumers: evaluated
// over blocks on the CPU, written as device code, differentiated.
//
// Expressions are written on Scalars with ordinary operators; an Expr is the flattened result, a
// list of instructions without common subexpressions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "core/dtype.h"

namespace ebb {

enum class ScalarOp : uint8_t {
  input,
  constant,
  add,
  sub,
  mul,
  div,
  min,
  max,
  less,
  pow,  // two arguments
  neg,
  abs,
  sqrt,
  rsqrt,
  exp,
  log,
  sin,
  cos,
  tanh,
  sigmoid,
  erf,
  floor,
  bf16,    // rounded to nearest even in that dtype; the gradient is that of the identity
  f16,     // one argument
  select,  // select(c, a, b): c != 0 ? a : b
};

struct ScalarOpInfo {
  ScalarOp op;
  std::string_view name;
  int arguments;
  double flops;  // nominal cost, for Cost
};
const ScalarOpInfo& info_of(ScalarOp op);

// A node of a scalar expression; cheap to copy. Constants fold and neutral elements vanish on
// construction.
class Scalar {
 public:
  Scalar(double constant);  // NOLINT: numbers read as numbers in expressions
  static Scalar input(int64_t index);
  static Scalar make(ScalarOp op, const Scalar& a);
  static Scalar make(ScalarOp op, const Scalar& a, const Scalar& b);
  static Scalar make(ScalarOp op, const Scalar& a, const Scalar& b, const Scalar& c);

  struct Node;
  const Node& node() const { return *node_; }
  bool is_constant() const;
  bool is_constant(double v) const;

 private:
  explicit Scalar(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

struct Scalar::Node {
  ScalarOp op;
  double value = 0;  // of a constant; index of an input
  std::vector<Scalar> arguments;
};

Scalar operator+(const Scalar& a, const Scalar& b);
Scalar operator-(const Scalar& a, const Scalar& b);
Scalar operator*(const Scalar& a, const Scalar& b);
Scalar operator/(const Scalar& a, const Scalar& b);
Scalar operator-(const Scalar& a);
Scalar min(const Scalar& a, const Scalar& b);
Scalar max(const Scalar& a, const Scalar& b);
Scalar less(const Scalar& a, const Scalar& b);  // 1 if a < b, else 0
Scalar pow(const Scalar& a, const Scalar& b);
Scalar select(const Scalar& condition, const Scalar& a, const Scalar& b);
Scalar abs(const Scalar& a);
Scalar sqrt(const Scalar& a);
Scalar rsqrt(const Scalar& a);
Scalar exp(const Scalar& a);
Scalar log(const Scalar& a);
Scalar sin(const Scalar& a);
Scalar cos(const Scalar& a);
Scalar tanh(const Scalar& a);
Scalar sigmoid(const Scalar& a);
Scalar erf(const Scalar& a);
Scalar floor(const Scalar& a);
Scalar rounded(const Scalar& a, DType dtype);  // bf16 or f16; a itself for f32

class Expr final : public TextValue {
 public:
  struct Instruction {
    ScalarOp op;
    int32_t a = -1, b = -1, c = -1;  // earlier instructions
    double value = 0;                // of a constant; index of an input
    bool operator==(const Instruction&) const = default;
  };

  Expr() = default;
  // The function of `inputs` arguments that returns `results`.
  Expr(int64_t inputs, std::span<const Scalar> results);

  int64_t inputs() const { return inputs_; }
  const std::vector<Instruction>& code() const { return code_; }
  const std::vector<int32_t>& results() const { return results_; }  // indices into code()
  bool operator==(const Expr& e) const {
    return inputs_ == e.inputs_ && code_ == e.code_ && results_ == e.results_;
  }

  // The results with `arguments` in place of the inputs.
  std::vector<Scalar> apply(std::span<const Scalar> arguments) const;
  // d(sum_k weights[k] * result[k]) / d(input i), for every i, at `arguments`.
  std::vector<Scalar> gradient(std::span<const Scalar> arguments,
                               std::span<const Scalar> weights) const;
  // Evaluates in double: the reference semantics.
  void evaluate(std::span<const double> in, std::span<double> out) const;
  double flops() const;  // of one evaluation, nominal
  bool uses(int64_t input) const;

  // "<2|t2=mul(x0,x1);t3=exp(t2)|t3>"
  std::string text() const override;
  void parse(std::string_view text) override;

 private:
  int64_t inputs_ = 0;
  std::vector<Instruction> code_;
  std::vector<int32_t> results_;
};

// The value of one instruction in double.
double evaluate(ScalarOp op, double a, double b, double c);

}  // namespace ebb
