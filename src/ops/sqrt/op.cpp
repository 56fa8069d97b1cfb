#include "ops/sqrt/op.h"

namespace ebb::ops {

const OpDef& def::sqrt() {
  static const OpDef d{
      .name = "sqrt",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{sqrt(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = 0.01, .high = 10}};
          }};
  return d;
}

Value sqrt(Value x) { return x.graph->add1(def::sqrt(), {}, {x}); }

}  // namespace ebb::ops
