#include "ops/multi_tensor_pointwise/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<MultiTensorPointwise>();
  require(a.lists > 0 && a.expr.inputs() > 0 &&
              a.expr.inputs() * a.lists == static_cast<int64_t>(s.in.size()),
          "multi_tensor_pointwise: ", a.lists, " lists of ", a.expr.inputs(), " inputs (got ",
          s.in.size(), ")  at ", s.at);
  std::vector<Type> out;
  for (int64_t p = 0; p < a.lists; ++p) {
    const Signature list = signature_of_list(s, p);
    for (const Type& t : list.in)
      require(t.shape == list.out[0].shape || t.shape.numel() == 1,
              "multi_tensor_pointwise: inputs must be of their list's shape or single numbers  ",
              list.text(), "  at ", s.at);
    out.insert(out.end(), list.out.begin(), list.out.end());
  }
  return out;
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<MultiTensorPointwise>();
  const auto count = static_cast<size_t>(a.expr.inputs());
  std::vector<Value> out;
  for (size_t p = 0; p < static_cast<size_t>(a.lists); ++p)
    for (const Value& v : pointwise(g, {a.expr, {}, a.dtypes}, in.subspan(p * count, count)))
      out.push_back(v);
  return out;
}

std::vector<Example> examples() {
  const Scalar x = Scalar::input(0), y = Scalar::input(1);
  const Scalar results[] = {x * sigmoid(y), x - y};
  const Expr expr(2, results);
  const Type one{DType::f32, {}}, small{DType::f32, {3}}, odd{DType::f32, {5, 7, 13}};
  const Type rows{DType::f32, {64, 129}}, none{DType::f32, {0, 3}};
  return {{.label = "shapes",
           .attrs = MultiTensorPointwise{expr, 4, "f32"},
           .in = {small, one, odd, one, rows, one, small, one}},
          {.label = "full",
           .attrs = MultiTensorPointwise{expr, 3, "f32"},
           .in = {odd, odd, small, small, none, none}},
          {.label = "casts",
           .attrs = MultiTensorPointwise{expr, 2, "bf16,f32"},
           .in = {odd, odd, rows, rows}}};
}

}  // namespace

Signature signature_of_list(const Signature& s, int64_t list) {
  const auto& a = s.as<MultiTensorPointwise>();
  const auto count = static_cast<size_t>(a.expr.inputs()),
             first = static_cast<size_t>(list) * count;
  Signature out{&def::pointwise(), Pointwise{a.expr, {}, a.dtypes}, {}, {}, s.at};
  out.in.assign(s.in.begin() + static_cast<ptrdiff_t>(first),
                s.in.begin() + static_cast<ptrdiff_t>(first + count));
  out.out = out.op->infer(out);
  return out;
}

const OpDef& def::multi_tensor_pointwise() {
  static const OpDef d{.name = "multi_tensor_pointwise",
                       .attrs = +[] { return Attrs(MultiTensorPointwise{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
