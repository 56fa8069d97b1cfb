#include "ops/gelu_tanh/op.h"

namespace ebb::ops {

const OpDef& def::gelu_tanh() {
  static const OpDef d{
      .name = "gelu_tanh",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr =
          +[](const Signature&, std::span<const Scalar> x) {
            return std::vector<Scalar>{
                0.5 * x[0] *
                (1.0 + tanh(GeluTanh::outer * x[0] * (1.0 + GeluTanh::inner * x[0] * x[0])))};
          },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -8, .high = 8}};
          }};
  return d;
}

Value gelu_tanh(Value x) { return x.graph->add1(def::gelu_tanh(), {}, {x}); }

}  // namespace ebb::ops
