#include "ops/sigmoid/op.h"

namespace ebb::ops {

const OpDef& def::sigmoid() {
  static const OpDef d{
      .name = "sigmoid",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{sigmoid(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -20, .high = 20}};
          }};
  return d;
}

Value sigmoid(Value x) { return x.graph->add1(def::sigmoid(), {}, {x}); }

}  // namespace ebb::ops
