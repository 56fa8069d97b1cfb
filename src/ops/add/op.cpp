#include "ops/add/op.h"

#include "ops/prim/pointwise/op.h"

namespace ebb {

const OpDef& ops::def::add() {
  static const OpDef d{
      .name = "add",
      .infer = +[](const Signature& s) { return infer_pointwise(s); },
      .expr = +[](const Signature&,
                  std::span<const Scalar> x) { return std::vector<Scalar>{x[0] + x[1]}; },
      .examples =
          +[] {
            return std::vector<Example>{
                {.label = "broadcast", .in = {{DType::f32, {2, 5, 1, 7}}, {DType::f32, {3, 7}}}}};
          }};
  return d;
}

Value operator+(Value a, Value b) { return a.graph->add1(ops::def::add(), {}, {a, b}); }

Value operator+(Value a, double b) {
  return ops::map({a}, [b](auto x) { return x[0] + b; });
}

Value operator+(double a, Value b) {
  return ops::map({b}, [a](auto x) { return a + x[0]; });
}

}  // namespace ebb
