#include "ops/relu/op.h"

namespace ebb::ops {

const OpDef& def::relu() {
  static const OpDef d{
      .name = "relu",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{max(0.0, x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -3, .high = 3}};
          }};
  return d;
}

Value relu(Value x) { return x.graph->add1(def::relu(), {}, {x}); }

}  // namespace ebb::ops
