#include "ops/gelu/op.h"

namespace ebb::ops {

const OpDef& def::gelu() {
  static const OpDef d{
      .name = "gelu",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr =
          +[](const Signature&, std::span<const Scalar> x) {
            return std::vector<Scalar>{0.5 * x[0] * (1.0 + erf(x[0] * 0.7071067811865476))};
          },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -8, .high = 8}};
          }};
  return d;
}

Value gelu(Value x) { return x.graph->add1(def::gelu(), {}, {x}); }

}  // namespace ebb::ops
