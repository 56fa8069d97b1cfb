#include "backend/cuda/expr_writer.h"

#include <numeric>

namespace ebb::cuda {
namespace {

std::vector<int32_t> arguments(const Expr::Instruction& i) {
  std::vector<int32_t> all = {i.a, i.b, i.c};
  all.resize(static_cast<size_t>(info_of(i.op).arguments));
  return all;
}

// The rate of what depends on both.
InputRate faster(const InputRate& a, const InputRate& b) {
  return {a.steps || b.steps, std::gcd(a.elements, b.elements)};
}

}  // namespace

std::vector<Precision> precisions(const Expr& expr, const std::vector<bool>& narrow) {
  std::vector<Precision> out(expr.code().size(), Precision::narrow);
  for (size_t k = 0; k < narrow.size(); ++k)
    if (!narrow[k]) out[static_cast<size_t>(expr.results()[k])] = Precision::full;
  for (size_t i = out.size(); i-- > 0;)
    if (out[i] == Precision::full)
      for (const int32_t a : arguments(expr.code()[i])) out[static_cast<size_t>(a)] = out[i];
  return out;
}

ExprWriter::ExprWriter(Ptx& ptx, const Expr& expr, std::vector<InputRate> rates,
                       const std::vector<bool>& narrow)
    : ptx_(ptx), expr_(expr), precision_(precisions(expr, narrow)) {
  for (size_t i = 0; i < expr.code().size(); ++i) {
    const Expr::Instruction& c = expr.code()[i];
    InputRate r{false, 0};
    if (c.op == ScalarOp::input) r = rates[static_cast<size_t>(c.value)];
    for (const int32_t a : arguments(c)) r = faster(r, rates_[static_cast<size_t>(a)]);
    if (!r.steps && r.elements == 0)
      precision_[i] = Precision::full;  // written once: costs nothing
    rates_.push_back(r);
  }
}

Operand ExprWriter::result(size_t k, int step, int element, const Load& load) {
  const int32_t last = expr_.results()[k];
  return value(last, step, element, load);
}

void ExprWriter::write_invariant(int elements, const Load& load) {
  for (size_t i = 0; i < rates_.size(); ++i) {
    if (rates_[i].steps) continue;
    for (int e = 0; e < (rates_[i].elements == 0 ? 1 : elements); ++e)
      value(static_cast<int32_t>(i), 0, e, load);
  }
}

Operand ExprWriter::value(int32_t i, int step, int element, const Load& load) {
  const Expr::Instruction& c = expr_.code()[static_cast<size_t>(i)];
  if (c.op == ScalarOp::constant) return static_cast<float>(c.value);
  const InputRate& r = rates_[static_cast<size_t>(i)];
  const int first = r.elements == 0 ? 0 : element / r.elements * r.elements;
  const Key key{i, r.steps ? step : 0, r.elements == 0 ? 0 : first};
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  const Operand v = written(i, step, first, load);
  known_.emplace(key, v);
  return v;
}

Operand ExprWriter::written(int32_t i, int step, int element, const Load& load) {
  const Expr::Instruction& c = expr_.code()[static_cast<size_t>(i)];
  if (c.op == ScalarOp::input) return load(static_cast<size_t>(c.value), step, element);
  const auto at = [&](int32_t k) { return value(k, step, element, load); };
  if (c.op == ScalarOp::select) {
    const Expr::Instruction& condition = expr_.code()[static_cast<size_t>(c.a)];
    if (condition.op == ScalarOp::less) {
      const Operand sides[] = {at(condition.a), at(condition.b)};
      const Operand yes = at(c.b);
      return write_select_less(ptx_, sides, yes, at(c.c));
    }
  }
  std::vector<Operand> x;
  for (const int32_t a : arguments(c)) x.push_back(at(a));
  return write_op(ptx_, c.op, x, precision_[static_cast<size_t>(i)]);
}

int ExprWriter::cost(int elements) const {
  int n = 0;
  for (size_t i = 0; i < expr_.code().size(); ++i) {
    const int once = instructions_of(expr_.code()[i].op, precision_[i]);
    n += once * (rates_[i].elements == 0 ? 1 : elements / rates_[i].elements);
  }
  return n;
}

}  // namespace ebb::cuda
