#include "ops/sin/op.h"

namespace ebb::ops {

const OpDef& def::sin() {
  static const OpDef d{
      .name = "sin",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{sin(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -30, .high = 30}};
          }};
  return d;
}

Value sin(Value x) { return x.graph->add1(def::sin(), {}, {x}); }

}  // namespace ebb::ops
