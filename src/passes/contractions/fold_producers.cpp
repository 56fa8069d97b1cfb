#include "passes/contractions/fold_producers.h"

#include <optional>

#include "ir/contraction.h"
#include "passes/schedule/prepare.h"
#include "passes/simplify.h"

namespace ebb {

Graph fold_producers(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Signature&, const Signature&)>& supports) {
  const std::vector<bool> from_weights = values_from_weights(g, is_weight);
  const auto producer_of = [&g](int32_t v) -> const Node* {
    return g.producer(v) < 0 ? nullptr : &g.nodes()[static_cast<size_t>(g.producer(v))];
  };
  const auto folded = [&](const Node& n) -> std::optional<Contraction::Folded> {
    if (!n.op->contraction || !from_weights[static_cast<size_t>(n.in[1])]) return {};
    if (n.out.size() != 1) return {};  // the other use has no result for a second one
    const Signature plain = g.signature(n);
    const Contraction c = n.op->contraction(plain);
    const Node* producer = producer_of(n.in[0]);
    if (c.fold == nullptr || producer == nullptr) return {};
    const auto f = c.fold(plain, g.signature(*producer));
    return f && supports(plain, f->use) ? f : std::nullopt;
  };
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    const auto f = folded(n);
    if (!f) {
      rw.copy(n);
      continue;
    }
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> in = rw.map(n.in);
    in[0] = rw.map(producer_of(n.in[0])->in[0]);
    in[1] = f->weights(in[1]);
    rw.set(n.out[0], rw.to().add(*f->use.op, f->use.attrs, in)[0]);
  }
  rw.copy_ends();
  return dead_code(rw.take());
}

}  // namespace ebb
