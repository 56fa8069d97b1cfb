#include "ops/fourier_embedding/op.h"

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2 && s.in[0].shape.rank() == 1 && s.in[1].shape.rank() == 1,
          "fourier_embedding: needs t [N] and freqs [d]  at ", s.at);
  return {{DType::f32, {s.in[0].shape[0], 2 * s.in[1].shape[0]}}};
}

std::vector<Value> decompose(Graph& g, const Signature&, std::span<const Value> in) {
  const Scalar angle = 6.283185307179586 * (Scalar::input(0) * Scalar::input(1));
  const Scalar results[] = {cos(angle), sin(angle)};
  const Value args[] = {reshape(in[0], {in[0].shape()[0], 1}), in[1]};
  return {concat(pointwise(g, {Expr(2, results), {}, DType::f32}, args), 1)};
}

std::vector<Example> examples() {
  return {{.label = "odd", .in = {{DType::f32, {5}}, {DType::f32, {7}}}, .low = -3, .high = 3}};
}

}  // namespace

const OpDef& def::fourier_embedding() {
  static const OpDef d{
      .name = "fourier_embedding", .infer = infer, .decompose = decompose, .examples = examples};
  return d;
}

Value fourier_embedding(Value t, Value freqs) {
  return t.graph->add1(def::fourier_embedding(), {}, {t, freqs});
}

}  // namespace ebb::ops
