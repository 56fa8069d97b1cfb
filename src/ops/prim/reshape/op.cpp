#include "ops/prim/reshape/op.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const Shape shape(s.as<Reshape>().shape);
  require(shape.numel() == s.in.at(0).shape.numel(), "reshape: must keep the number of elements (",
          s.in[0].shape.numel(), " to ", shape.numel(), ")  ", s.in[0], " to ", shape, "  at ",
          s.at);
  return {{s.in[0].dtype, shape}};
}

std::vector<Value> vjp(const VjpCall& c) { return {reshape(c.dout[0], c.in[0].shape())}; }

void reference(const Signature&, std::span<const RefArray> in, std::span<RefArray> out) {
  out[0].v = in[0].v;
}

std::vector<Example> examples() {
  return {{.label = "split", .attrs = Reshape{{2, 3, 4, 5}}, .in = {{DType::f32, {6, 20}}}}};
}

}  // namespace

const OpDef& def::reshape() {
  static const OpDef d{.name = "reshape",
                       .attrs = +[] { return Attrs(Reshape{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .renames = true,
                       .cost = +[](const Signature&) { return Cost{}; },
                       .examples = examples};
  return d;
}

Value reshape(Value x, Shape shape) {
  int64_t known = 1, unknown = -1;
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == -1) {
      require(unknown < 0, "reshape: one size at most may be -1  ", shape);
      unknown = d;
    } else {
      known *= shape[d];
    }
  }
  if (unknown >= 0) shape[unknown] = known ? x.shape().numel() / known : 0;
  return x.shape() == shape ? x : x.graph->add1(def::reshape(), Reshape{shape.sizes()}, {x});
}

}  // namespace ebb::ops
