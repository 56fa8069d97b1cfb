#include "ops/cos/op.h"

namespace ebb::ops {

const OpDef& def::cos() {
  static const OpDef d{
      .name = "cos",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{cos(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -30, .high = 30}};
          }};
  return d;
}

Value cos(Value x) { return x.graph->add1(def::cos(), {}, {x}); }

}  // namespace ebb::ops
