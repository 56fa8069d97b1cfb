#include "passes/precision/narrow_results.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/contraction.h"
#include "passes/expression_node.h"
#include "passes/made_node.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

bool is_narrowing(const Graph& g, const Node& n) {
  if (!is_cast(g, n)) return false;
  const DType from = g.type(n.in[0]).dtype, to = g.type(n.out[0]).dtype;
  return is_float(from) && is_float(to) && size_of(to) < size_of(from);
}

class ResultNarrower {
 public:
  ResultNarrower(const Graph& g, const SameClass& same_class)
      : g_(g), same_class_(same_class), uses_(g) {}

  Graph run() {
    std::set<const Node*> gone;
    for (const Node& n : g_.nodes())
      if (is_narrowing(g_, n) && narrow(n)) gone.insert(&n);
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (const auto it = made_.find(i); it != made_.end())
        add_made(rw, it->second.node);
      else if (gone.contains(&n))
        rw.set(n.out[0], rw.map(n.in[0]));
      else
        rw.copy(n);
    }
    rw.copy_ends();
    return rw.take();
  }

 private:
  struct Made {
    Node node;
    std::vector<Type> out;
  };

  bool narrow(const Node& cast) {
    attempt_.clear();
    if (!narrow(cast.in[0], g_.type(cast.out[0]).dtype)) return false;
    for (auto& [at, made] : attempt_) made_.insert_or_assign(at, std::move(made));
    return true;
  }

  // Whether `v`, which one node alone reads, can be made in the dtype: by what computes it, or what
  // computes all that it is a copy of.
  bool narrow(int32_t v, DType to) {
    const Node* n = uses_.single_use_producer(v);
    if (n == nullptr) return false;
    if (n->op->renames || (n->op->copy && n->out.size() == 1))
      return std::ranges::all_of(n->in, [&](int32_t from) { return narrow(from, to); });
    const auto at = static_cast<size_t>(g_.producer(v));
    Signature s = g_.signature(*n);
    for (const auto* made : {&attempt_, &made_})
      if (const auto it = made->find(at); it != made->end()) {
        s.out = it->second.out;
        break;
      }
    const auto k = static_cast<size_t>(std::ranges::find(n->out, v) - n->out.begin());
    s.out[k].dtype = to;
    const std::optional<Node> made = n->op->contraction ? contraction(*n, s) : expression(*n, s);
    if (made) attempt_.insert_or_assign(at, Made{*made, s.out});
    return made.has_value();
  }

  // The node with the results of `s`.
  std::optional<Node> contraction(Node n, Signature s) const {
    const Signature before = g_.signature(n);
    const Contraction c = n.op->contraction(s);
    const std::optional<Attrs> attrs = c.with(s, c.epilogue, s.out[0].dtype, c.products);
    if (!attrs) return {};
    n.attrs = s.attrs = *attrs;
    if (!gives_the_same(s) || !same_class_(before, s)) return {};
    return n;
  }
  std::optional<Node> expression(const Node& n, const Signature& s) const {
    std::optional<ExpressionNode> e = expression_node_of(g_, n);
    if (!e) return {};
    for (size_t k = 0; k < s.out.size(); ++k) e->dtypes[k] = s.out[k].dtype;
    return e->node();
  }

  const Graph& g_;
  const SameClass& same_class_;
  const Uses uses_;
  std::map<size_t, Made> made_, attempt_;  // by the node whose place they take
};

}  // namespace

Graph narrow_results(const Graph& g, const SameClass& same_class) {
  return ResultNarrower(g, same_class).run();
}

}  // namespace ebb
