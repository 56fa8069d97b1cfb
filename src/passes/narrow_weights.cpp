#include "passes/narrow_weights.h"

#include <optional>

#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "passes/prepare.h"
#include "passes/simplify.h"

namespace ebb {

Graph narrow_weights(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Signature&)>& supported) {
  const std::vector<bool> from_weights = values_from_weights(g, is_weight);
  // The value that the second operand is a cast of.
  const auto narrow = [&](const Node& n) -> std::optional<int32_t> {
    if (n.op != &ops::def::matmul() && n.op != &ops::def::conv2d()) return {};
    const int32_t weight = n.in[1], producer = g.producer(weight);
    if (producer < 0 || !from_weights[static_cast<size_t>(weight)]) return {};
    const Node& cast = g.nodes()[static_cast<size_t>(producer)];
    if (!is_lossless_cast(g, cast)) return {};
    Signature with = g.signature(n);
    with.in[1] = g.type(cast.in[0]);
    if (with.in[1] == g.type(weight) || !supported(with)) return {};
    return cast.in[0];
  };
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    Node with = n;
    if (const auto v = narrow(n)) with.in[1] = *v;
    rw.copy(with);
  }
  rw.copy_ends();
  return dead_code(rw.take());
}

}  // namespace ebb
