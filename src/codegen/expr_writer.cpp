#include "codegen/expr_writer.h"

#include <numeric>
#include <optional>
#include <utility>

#include "ir/expr_inputs.h"

namespace ebb::codegen {
namespace {

// The rate of what depends on both.
InputRate faster(const InputRate& a, const InputRate& b) {
  return {a.steps || b.steps, std::gcd(a.elements, b.elements)};
}

// u where i is tanh(u); none otherwise.
std::optional<int32_t> tanh_argument(const Expr& e, int32_t i) {
  const Expr::Instruction& c = e.code()[static_cast<size_t>(i)];
  return c.op == ScalarOp::tanh ? std::optional(c.a) : std::nullopt;
}
bool is_one(const Expr& e, int32_t i) {
  const Expr::Instruction& c = e.code()[static_cast<size_t>(i)];
  return c.op == ScalarOp::constant && c.value == 1;
}

// What instruction c is in terms of sigmoid(2 u); `known` are the values of earlier instructions.
std::optional<Scalar> by_sigmoid(const Expr& e, const Expr::Instruction& c,
                                 const std::vector<Scalar>& known) {
  const auto s = [&](int32_t u) { return sigmoid(2.0 * known[static_cast<size_t>(u)]); };
  if (c.op == ScalarOp::add) {
    for (const auto& [one, t] : {std::pair(c.a, c.b), std::pair(c.b, c.a)})
      if (const auto u = tanh_argument(e, t); u && is_one(e, one)) return 2.0 * s(*u);
  }
  if (c.op == ScalarOp::sub && is_one(e, c.a)) {
    const Expr::Instruction& square = e.code()[static_cast<size_t>(c.b)];
    if (square.op != ScalarOp::mul || square.a != square.b) return std::nullopt;
    if (const auto u = tanh_argument(e, square.a)) return 4.0 * s(*u) * (1.0 - s(*u));
  }
  return std::nullopt;
}

}  // namespace

Expr simplified(const Expr& expr) {
  std::vector<Scalar> known, results;
  for (const Expr::Instruction& c : expr.code()) {
    if (c.op == ScalarOp::input) {
      known.push_back(Scalar::input(static_cast<int64_t>(c.value)));
    } else if (c.op == ScalarOp::constant) {
      known.emplace_back(c.value);
    } else if (const auto s = by_sigmoid(expr, c, known)) {
      known.push_back(*s);
    } else {
      std::vector<Scalar> x;
      for (const int32_t a : arguments_of(c)) x.push_back(known[static_cast<size_t>(a)]);
      known.push_back(scalar_of(c.op, x));
    }
  }
  for (const int32_t r : expr.results()) results.push_back(known[static_cast<size_t>(r)]);
  return Expr(expr.inputs(), results);
}

std::vector<Precision> precisions(const Expr& expr, const std::vector<bool>& narrow) {
  std::vector<Precision> out(expr.code().size(), Precision::narrow);
  for (size_t k = 0; k < narrow.size(); ++k)
    if (!narrow[k]) out[static_cast<size_t>(expr.results()[k])] = Precision::full;
  for (size_t i = out.size(); i-- > 0;)
    if (out[i] == Precision::full)
      for (const int32_t a : arguments_of(expr.code()[i])) out[static_cast<size_t>(a)] = out[i];
  return out;
}

ExprWriter::ExprWriter(Builder& builder, const Expr& expr, std::vector<InputRate> rates,
                       const std::vector<bool>& narrow)
    : b_(builder), expr_(expr), precision_(precisions(expr, narrow)) {
  for (size_t i = 0; i < expr.code().size(); ++i) {
    const Expr::Instruction& c = expr.code()[i];
    InputRate r{false, 0};
    if (c.op == ScalarOp::input) r = rates[static_cast<size_t>(c.value)];
    for (const int32_t a : arguments_of(c)) r = faster(r, rates_[static_cast<size_t>(a)]);
    if (!r.steps && r.elements == 0)
      precision_[i] = Precision::full;  // written once: costs nothing
    rates_.push_back(r);
  }
}

F32 ExprWriter::result(size_t k, int step, int element, const Load& load) {
  return value(expr_.results()[k], step, element, load);
}

void ExprWriter::write_invariant(int elements, const Load& load) {
  for (size_t i = 0; i < rates_.size(); ++i) {
    if (rates_[i].steps) continue;
    for (int e = 0; e < (rates_[i].elements == 0 ? 1 : elements); ++e)
      value(static_cast<int32_t>(i), 0, e, load);
  }
}

F32 ExprWriter::value(int32_t i, int step, int element, const Load& load) {
  const Expr::Instruction& c = expr_.code()[static_cast<size_t>(i)];
  if (c.op == ScalarOp::constant) return b_.f32(static_cast<float>(c.value));
  const InputRate& r = rates_[static_cast<size_t>(i)];
  const int first = r.elements == 0 ? 0 : element / r.elements * r.elements;
  const Key key{i, r.steps ? step : 0, r.elements == 0 ? 0 : first};
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const F32 v = written(i, step, first, load);
  known_.emplace(key, v);
  return v;
}

F32 ExprWriter::written(int32_t i, int step, int element, const Load& load) {
  const Expr::Instruction& c = expr_.code()[static_cast<size_t>(i)];
  if (c.op == ScalarOp::input) return load(static_cast<size_t>(c.value), step, element);
  const auto at = [&](int32_t k) { return value(k, step, element, load); };
  if (c.op == ScalarOp::select) {
    const Expr::Instruction& condition = expr_.code()[static_cast<size_t>(c.a)];
    if (condition.op == ScalarOp::less) {
      const F32 a = at(condition.a), b = at(condition.b), yes = at(c.b);
      return select(a < b, yes, at(c.c));
    }
  }
  std::vector<F32> x;
  for (const int32_t a : arguments_of(c)) x.push_back(at(a));
  return write_op(c.op, x, precision_[static_cast<size_t>(i)]);
}

int ExprWriter::cost(int elements) const {
  int n = 0;
  for (size_t i = 0; i < expr_.code().size(); ++i) {
    const int once = instructions_of(expr_.code()[i].op, precision_[i]);
    n += once * (rates_[i].elements == 0 ? 1 : elements / rates_[i].elements);
  }
  return n;
}

}  // namespace ebb::codegen
