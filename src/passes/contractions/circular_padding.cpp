#include "passes/contractions/circular_padding.h"

#include "base/error.h"
#include "ir/contraction.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/slice/op.h"

namespace ebb {
namespace {

// [.., size, ..] -> [.., size + 2 pad, ..]
Value wrapped(Value x, int64_t dim, int64_t pad) {
  const int64_t size = x.shape()[dim];
  require(size >= pad, "tiling: a side of ", size, " is too small for a padding of ", pad, "  ",
          x.type());
  return ops::concat({ops::slice(x, dim, size - pad, size), x, ops::slice(x, dim, 0, pad)}, dim);
}

}  // namespace

Graph circular_padding(const Graph& g, CircularAxes axes) {
  if (!axes.any()) return g;
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    const Contraction c = n.op->contraction ? n.op->contraction(g.signature(n)) : Contraction{};
    if (c.padding.empty()) {
      rw.copy(n);
      continue;
    }
    const AtScope scope(rw.to(), n.at);
    std::vector<int64_t> zeros = c.padding;
    std::vector<Value> in = rw.map(n.in);
    const auto wrap = [&](bool wanted, int64_t dim, int64_t& before, int64_t& after) {
      if (!wanted || before != after || before == 0) return;
      in[0] = wrapped(in[0], dim, before);
      before = after = 0;
    };
    wrap(axes.y, 1, zeros[0], zeros[2]);
    wrap(axes.x, 2, zeros[1], zeros[3]);
    const auto out = rw.to().add(*n.op, c.with_padding(g.signature(n), zeros), in);
    for (size_t i = 0; i < n.out.size(); ++i) rw.set(n.out[i], out[i]);
  }
  rw.copy_ends();
  return rw.take();
}

}  // namespace ebb
