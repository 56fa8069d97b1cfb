#include "ops/prim/literal/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Literal>();
  const Shape shape(a.shape);
  require(shape.numel() == static_cast<int64_t>(a.values.size()), "literal: ", shape, " needs ",
          shape.numel(), " values (got ", a.values.size(), ")  at ", s.at);
  return {{DType::f32, shape}};
}

void reference(const Signature& s, std::span<const RefArray>, std::span<RefArray> out) {
  out[0].v = s.as<Literal>().values;
}

std::vector<Example> examples() {
  return {{.label = "table", .attrs = Literal{{1, -2.5, 0.1, 3e10, 0, 7}, {2, 3}}},
          {.label = "one", .attrs = Literal{{0.5}, {}}},
          {.label = "empty", .attrs = Literal{{}, {0, 4}}}};
}

}  // namespace

const OpDef& def::literal() {
  static const OpDef d{.name = "literal",
                       .attrs = +[] { return Attrs(Literal{}); },
                       .infer = infer,
                       .reference = reference,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

Value literal(Graph& g, std::vector<double> values, const Shape& shape) {
  return g.add(def::literal(), Literal{std::move(values), shape.sizes()}, {})[0];
}

}  // namespace ebb::ops
