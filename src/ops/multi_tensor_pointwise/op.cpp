#include "ops/pointwise_batch/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<PointwiseBatch>();
  require(a.parts > 0 && a.expr.inputs() > 0 &&
              a.expr.inputs() * a.parts == static_cast<int64_t>(s.in.size()),
          "pointwise_batch: ", a.parts, " parts of ", a.expr.inputs(), " inputs (got ", s.in.size(),
          ")  at ", s.at);
  std::vector<Type> out;
  for (int64_t p = 0; p < a.parts; ++p) {
    const Signature part = part_of(s, p);
    for (const Type& t : part.in)
      require(t.shape == part.out[0].shape || t.shape.numel() == 1,
              "pointwise_batch: inputs must be of their part's shape or single numbers  ",
              part.text(), "  at ", s.at);
    out.insert(out.end(), part.out.begin(), part.out.end());
  }
  return out;
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<PointwiseBatch>();
  const auto count = static_cast<size_t>(a.expr.inputs());
  std::vector<Value> out;
  for (size_t p = 0; p < static_cast<size_t>(a.parts); ++p)
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
           .attrs = PointwiseBatch{expr, 4, "f32"},
           .in = {small, one, odd, one, rows, one, small, one}},
          {.label = "full",
           .attrs = PointwiseBatch{expr, 3, "f32"},
           .in = {odd, odd, small, small, none, none}},
          {.label = "casts",
           .attrs = PointwiseBatch{expr, 2, "bf16,f32"},
           .in = {odd, odd, rows, rows}}};
}

}  // namespace

Signature part_of(const Signature& s, int64_t part) {
  const auto& a = s.as<PointwiseBatch>();
  const auto count = static_cast<size_t>(a.expr.inputs()),
             first = static_cast<size_t>(part) * count;
  Signature out{&def::pointwise(), Pointwise{a.expr, {}, a.dtypes}, {}, {}, s.at};
  out.in.assign(s.in.begin() + static_cast<ptrdiff_t>(first),
                s.in.begin() + static_cast<ptrdiff_t>(first + count));
  out.out = out.op->infer(out);
  return out;
}

const OpDef& def::pointwise_batch() {
  static const OpDef d{.name = "pointwise_batch",
                       .attrs = +[] { return Attrs(PointwiseBatch{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
