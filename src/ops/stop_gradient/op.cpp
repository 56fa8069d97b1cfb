#include "ops/stop_gradient/op.h"

namespace ebb::ops {

const OpDef& def::stop_gradient() {
  static const OpDef d{
      .name = "stop_gradient",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr =
          +[](const Signature&, std::span<const Scalar> x) { return std::vector<Scalar>{x[0]}; },
      .examples =
          +[] {
            return std::vector<Example>{{.label = "odd", .in = {{DType::f32, {3, 37}}}}};
          },
      .differentiable = false};
  return d;
}

Value stop_gradient(Value x) { return x.graph->add1(def::stop_gradient(), {}, {x}); }

}  // namespace ebb::ops
