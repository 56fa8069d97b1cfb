#include "ops/exp/op.h"

namespace ebb::ops {

const OpDef& def::exp() {
  static const OpDef d{
      .name = "exp",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{exp(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -10, .high = 10}};
          }};
  return d;
}

Value exp(Value x) { return x.graph->add1(def::exp(), {}, {x}); }

}  // namespace ebb::ops
