#include "ops/tanh/op.h"

namespace ebb::ops {

const OpDef& def::tanh() {
  static const OpDef d{
      .name = "tanh",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{tanh(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -8, .high = 8}};
          }};
  return d;
}

Value tanh(Value x) { return x.graph->add1(def::tanh(), {}, {x}); }

}  // namespace ebb::ops
