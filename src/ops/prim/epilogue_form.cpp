#include "ops/prim/epilogue_form.h"

#include <algorithm>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ir/normal_form.h"

namespace ebb::ops {
namespace {

using FormKind = EpilogueForm::Kind;
using Operands = std::vector<EpilogueView>;

bool is_input(const Expr& e, int32_t at, int64_t input) {
  const Expr::Instruction& i = e.code()[static_cast<size_t>(at)];
  return i.op == ScalarOp::input && static_cast<int64_t>(i.value) == input;
}

// The expression as one of z, whose parts are its first inputs, and of all operands but the bias;
// none where it reads the products or the bias in another way than by their sum.
class OfSums {
 public:
  OfSums(const Expr& e, int64_t parts, const Operands& operands, const EpilogueView* bias)
      : e_(e), parts_(parts) {
    for (int64_t p = 0; p < parts; ++p) as_.push_back(bias ? unknown : next_++);
    if (bias) next_ = parts;
    for (const EpilogueView& o : operands) {
      if (&o == bias) bias_ = std::ssize(as_);
      for (int64_t p = 0; p < o.parts; ++p) as_.push_back(&o == bias ? unknown : next_++);
    }
  }

  std::optional<Expr> expr() const {
    std::vector<Scalar> v;
    for (const Expr::Instruction& i : e_.code()) v.push_back(value(i, v));
    std::vector<Scalar> results;
    for (const int32_t r : e_.results()) results.push_back(v[static_cast<size_t>(r)]);
    Expr out(next_, results);
    if (out.uses(unknown)) return {};
    return out;
  }

 private:
  static constexpr int64_t unknown = -1;

  Scalar value(const Expr::Instruction& i, const std::vector<Scalar>& before) const {
    if (i.op == ScalarOp::input) return Scalar::input(as_[static_cast<size_t>(i.value)]);
    if (i.op == ScalarOp::constant) return i.value;
    const std::vector<int32_t> from = arguments_of(i);
    if (i.op == ScalarOp::add && bias_ > 0)
      for (int64_t p = 0; p < parts_; ++p)
        if (reads(from[0], from[1], p) || reads(from[1], from[0], p)) return Scalar::input(p);
    std::vector<Scalar> x;
    for (const int32_t a : from) x.push_back(before[static_cast<size_t>(a)]);
    return scalar_of(i.op, x);
  }

  bool reads(int32_t product, int32_t bias, int64_t part) const {
    return is_input(e_, product, part) && is_input(e_, bias, bias_ + part);
  }

  const Expr& e_;
  const int64_t parts_;
  int64_t bias_ = 0;         // its first input
  int64_t next_ = 0;         // the number of inputs of the new expression
  std::vector<int64_t> as_;  // by input
};

Expr result(const Expr& e, size_t k) {
  const Scalar y = e.apply(inputs_as_scalars(e))[k];
  return Expr(e.inputs(), {&y, 1});
}

// x[residual] + x[factors] x0.
bool is_scaled(const Expr& e, int64_t residual, int64_t factors) {
  const Scalar y = Scalar::input(residual) + Scalar::input(factors) * Scalar::input(0);
  return near(NormalForm(e), NormalForm(Expr(e.inputs(), {&y, 1})));
}

// With two operands beside the bias.
bool match_scaled(EpilogueForm& f, const Expr& e, const Operands& others) {
  for (const size_t k : {0u, 1u}) {
    const EpilogueView &factors = others[k], &residual = others[1 - k];
    if (factors.kind != EpilogueView::Kind::row || residual.kind != EpilogueView::Kind::element)
      continue;
    const auto input = [](size_t i) { return static_cast<int64_t>(i) + 1; };
    if (!is_scaled(e, input(1 - k), input(k))) continue;
    f.kind = FormKind::scaled;
    f.factors = factors.input;
    f.factor_rows = factors.rows;
    f.factor_column = factors.column;
    f.add.residual = residual.input;
    return true;
  }
  return false;
}

bool match(EpilogueForm& f, const Expr& e, int64_t parts, const Operands& others) {
  const auto known = [&](FormKind kind, const std::optional<Gate>& gate) {
    f.kind = kind;
    if (gate) f.gate = *gate;
    return gate.has_value();
  };
  if (others.empty()) return known(parts == 2 ? FormKind::gated : FormKind::activated, gate_of(e));
  if (parts > 1 || f.keeps) return false;
  if (others.size() == 2) return match_scaled(f, e, others);
  if (others.size() > 2 || others[0].kind != EpilogueView::Kind::element) return false;
  f.y = others[0].input;
  return known(FormKind::activation_grad, gate_gradient_of(e));
}

}  // namespace

std::optional<EpilogueForm> epilogue_form(const Signature& s) {
  const Epilogue e = s.op->contraction(s).epilogue;
  if (e.is_sum()) return EpilogueForm{.add = summands_of(s)};
  if (e.parts > 2 || s.out[0].dtype != s.in[0].dtype) return {};
  Shape products = s.out[0].shape;
  products[-1] *= e.parts;
  EpilogueForm f{.keeps = e.keeps()};
  const Operands operands = epilogue_views(s, products);
  const EpilogueView* bias = nullptr;
  Operands others;
  for (const EpilogueView& o : operands) {
    if (o.kind == EpilogueView::Kind::column && o.parts == e.parts && o.column == 0 && !bias) {
      bias = &o;
      f.add.bias = o.input;
      continue;
    }
    const Type& t = s.in[o.input];
    if (t.dtype != s.out[0].dtype) return {};
    if (o.kind == EpilogueView::Kind::element && !(t == s.out[0])) return {};
    others.push_back(o);
  }
  const std::optional<Expr> of_z = OfSums(e.expr, e.parts, operands, bias).expr();
  if (!of_z) return {};
  for (int64_t p = 0; f.keeps && p < e.parts; ++p)
    if (!is_input(*of_z, of_z->results()[1 + static_cast<size_t>(p)], p)) return {};
  if (!match(f, result(*of_z, 0), e.parts, others)) return {};
  return f;
}

Signature with_bias_alone(const Signature& s) {
  const Contraction c = s.op->contraction(s);
  const std::optional<size_t> bias = epilogue_form(s).value().add.bias;
  Signature z{s.op, *c.with(s, {}, s.out[0].dtype, c.products), s.in, {}, s.at, s.aligned};
  z.in.resize(c.first_operand());
  if (bias) z.in.push_back(s.in[*bias]);
  z.out = z.op->infer(z);
  return z;
}

}  // namespace ebb::ops
