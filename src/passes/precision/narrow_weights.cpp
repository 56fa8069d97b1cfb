#include "passes/precision/narrow_weights.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/op.h"
#include "passes/schedule/prepare.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

bool all_sources(const Graph& g, int32_t value, const std::function<bool(const Source&)>& are) {
  if (const int32_t at = g.producer(value); at >= 0)
    return std::ranges::all_of(g.nodes()[static_cast<size_t>(at)].in,
                               [&](int32_t v) { return all_sources(g, v, are); });
  return are(*std::ranges::find(g.sources(), value, &Source::value));
}

}  // namespace

Graph narrow_weights(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Source&)>& as_stored,
                     const std::function<bool(const Signature&)>& supported) {
  const std::vector<bool> from_weights = values_from_weights(g, is_weight);
  // What a value from weights is a lossless cast of.
  const auto cast_of = [&](int32_t value) -> std::optional<int32_t> {
    const int32_t at = g.producer(value);
    if (at < 0 || !from_weights[static_cast<size_t>(value)]) return {};
    const Node& cast = g.nodes()[static_cast<size_t>(at)];
    if (!is_lossless_cast(g, cast) || g.type(cast.in[0]) == g.type(value)) return {};
    return cast.in[0];
  };
  const auto narrow = [&](Node& n) {
    Signature with = g.signature(n);
    for (size_t k = 0; k < std::min(n.op->operands, n.in.size()); ++k) {
      const std::optional<int32_t> before = cast_of(n.in[k]);
      if (!before) continue;
      const Type wide = std::exchange(with.in[k], g.type(*before));
      if (gives_the_same(with) && supported(with) && all_sources(g, *before, as_stored))
        n.in[k] = *before;
      else
        with.in[k] = wide;
    }
  };
  Rewriter rw(g);
  rw.copy_sources();
  for (Node n : g.nodes()) {
    if (n.op->matrix_work) narrow(n);
    rw.copy(n);
  }
  rw.copy_ends();
  return dead_code(rw.take());
}

}  // namespace ebb
