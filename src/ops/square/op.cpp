#include "ops/square/op.h"

namespace ebb::ops {

const OpDef& def::square() {
  static const OpDef d{
      .name = "square",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{x[0] * x[0]}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -3, .high = 3}};
          }};
  return d;
}

Value square(Value x) { return x.graph->add1(def::square(), {}, {x}); }

}  // namespace ebb::ops
