#include "ops/silu/op.h"

namespace ebb::ops {

const OpDef& def::silu() {
  static const OpDef d{
      .name = "silu",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{x[0] * sigmoid(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -20, .high = 20},
                {.label = "large", .in = {{DType::f32, {32, 64, 64, 64}}}, .bench = true}};
          }};
  return d;
}

Value silu(Value x) { return x.graph->add1(def::silu(), {}, {x}); }

}  // namespace ebb::ops
