#include "ops/log/op.h"

namespace ebb::ops {

const OpDef& def::log() {
  static const OpDef d{
      .name = "log",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{log(x[0])}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = 0.01, .high = 10}};
          }};
  return d;
}

Value log(Value x) { return x.graph->add1(def::log(), {}, {x}); }

}  // namespace ebb::ops
