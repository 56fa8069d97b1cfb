#include "ops/neg/op.h"

namespace ebb {

const OpDef& ops::def::neg() {
  static const OpDef d{
      .name = "neg",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr =
          +[](const Signature&, std::span<const Scalar> x) { return std::vector<Scalar>{-x[0]}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "odd", .in = {{DType::f32, {3, 37}}}, .low = -3, .high = 3}};
          }};
  return d;
}

Value operator-(Value x) { return x.graph->add1(ops::def::neg(), {}, {x}); }

}  // namespace ebb
