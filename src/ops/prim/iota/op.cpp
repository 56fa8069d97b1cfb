#include "ops/prim/iota/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Iota>();
  const Shape shape(a.shape);
  require(0 <= a.dim && a.dim < shape.rank(), "iota: dim ", a.dim, " is out of range  ", shape,
          "  at ", s.at);
  return {{DType::f32, shape}};
}

void reference(const Signature& s, std::span<const RefArray>, std::span<RefArray> out) {
  const auto& a = s.as<Iota>();
  const Shape& y = out[0].shape;
  const int64_t inner = y.slice(a.dim + 1, y.rank()).numel();
  for (int64_t i = 0; i < y.numel(); ++i)
    out[0].v[static_cast<size_t>(i)] = a.start + a.step * static_cast<double>(i / inner % y[a.dim]);
}

std::vector<Example> examples() {
  return {
      {.label = "line", .attrs = Iota{{37}}},
      {.label = "columns", .attrs = Iota{{3, 5, 2}, 1, -0.5, 0.25}},
      {.label = "empty", .attrs = Iota{{0}}},
  };
}

}  // namespace

const OpDef& def::iota() {
  static const OpDef d{.name = "iota",
                       .attrs = +[] { return Attrs(Iota{}); },
                       .infer = infer,
                       .reference = reference,
                       .by_index = true,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

Value iota(Graph& g, const Iota& attrs) { return g.add(def::iota(), attrs, {})[0]; }

}  // namespace ebb::ops
