// ExprWriter: an expression as code, over the elements that one thread works on.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "codegen/math.h"

namespace ebb::codegen {

// A thread evaluates an expression at steps and, in each, at the elements of a vector. How an input
// moves through them decides what is evaluated once only.
struct InputRate {
  bool steps = true;     // another value each step
  int32_t elements = 1;  // neighbours that share a value; 0: all of them
};

class ExprWriter {
 public:
  // f32 value of an input at a step and an element.
  using Load = std::function<F32(size_t input, int step, int element)>;
  // `narrow` says of each result whether it is rounded to 16 bits.
  ExprWriter(Builder& builder, const Expr& expr, std::vector<InputRate> rates,
             const std::vector<bool>& narrow);

  // Writes what is not written yet. Steps may be numbered at will.
  F32 result(size_t k, int step, int element, const Load& load);

  // Writes what does not change from step to step, for the first `elements`; later results use it.
  void write_invariant(int elements, const Load& load);

  // Instructions of `elements` evaluations, about.
  int cost(int elements) const;

 private:
  using Key = std::tuple<int32_t, int, int>;
  F32 value(int32_t i, int step, int element, const Load& load);
  F32 written(int32_t i, int step, int element, const Load& load);

  Builder& b_;
  const Expr& expr_;
  std::vector<InputRate> rates_;  // by instruction
  std::vector<Precision> precision_;
  std::map<Key, F32> known_;
};

// The same function, easier to compute and no less exact: 1 + tanh(u) and 1 - tanh(u)^2 are written
// with sigmoid(2 u), which has no case to tell apart.
Expr simplified(const Expr& expr);

// The precision of every instruction: narrow if only narrow results depend on it.
std::vector<Precision> precisions(const Expr& expr, const std::vector<bool>& narrow);

}  // namespace ebb::codegen
