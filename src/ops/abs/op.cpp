#include "ops/abs/op.h"

namespace ebb::ops {

const OpDef& def::abs() {
  static const OpDef d{
      .name = "abs",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{abs(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -3, .high = 3}};
          }};
  return d;
}

Value abs(Value x) { return x.graph->add1(def::abs(), {}, {x}); }

}  // namespace ebb::ops
