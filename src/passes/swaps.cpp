#include "passes/hoist_views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/prim/reshape/op.h"
#include "ops/prim/swaps.h"
#include "passes/expression_node.h"
#include "passes/operand_views.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

class Hoister {
 public:
  explicit Hoister(const Graph& g) : g_(g), readers_(static_cast<size_t>(g.values())) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      for (const int32_t v : g.nodes()[i].in) readers_[static_cast<size_t>(v)].push_back(i);
    for (const auto* ends : {&g.outputs(), &g.updates()})
      for (const NamedValue& e : *ends) kept_.insert(e.value);
  }

  Graph run() {
    Rewriter rw(g_);
    rw.copy_sources();
    bool any = false;
    for (const Node& n : g_.nodes()) {
      const std::optional<SwapView> view =
          n.out.size() == 1 ? of_pointwise(n.out[0]) : std::nullopt;
      if (const auto known = hoisted_.find(root_of(g_, n.out[0]));
          known != hoisted_.end() && n.op->renames) {  // no shape lies between it and its readers
        rw.set(n.out[0], ops::reshape(known->second, g_.type(n.out[0]).shape));
        continue;
      }
      if (!view) {
        rw.copy(n);
        continue;
      }
      any = true;
      const AtScope scope(rw.to(), n.at);
      const Node& pointwise = *producer(g_, view->base);
      std::vector<Value> in = rw.map(pointwise.in);
      for (Value& x : in)
        if (x.shape().rank() > 0 && x.shape()[-1] != 1) x = ops::swap_runs(x, view->run);
      const Value y = rw.to().add(*pointwise.op, pointwise.attrs, in)[0];
      rw.set(n.out[0], ops::reshape(y, g_.type(n.out[0]).shape));
      hoisted_.emplace(n.out[0], y);
    }
    if (!any) return g_;
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  // The concatenation of a swap of a pointwise result.
  std::optional<SwapView> of_pointwise(int32_t v) const {
    const std::optional<SwapView> view = swap_of(g_, v);
    if (!view || g_.producer(v) != static_cast<int32_t>(view->node)) return {};
    const Node* const base = producer(g_, view->base);
    if (!base || !is_elementwise(*base) || base->out.size() != 1) return {};
    const int64_t width = g_.type(view->base).shape[-1];
    for (const int32_t x : base->in) {
      const Shape& s = g_.type(x).shape;
      if (s.rank() > 0 && s[-1] != 1 && s[-1] != width) return {};
    }
    return only_for_swap(view->base) ? view : std::nullopt;
  }
  // Whether only pointwise nodes and copies, as of a swap, read `v`, under any shape.
  bool only_for_swap(int32_t v) const {
    if (kept_.contains(v)) return false;
    return std::ranges::all_of(readers_[static_cast<size_t>(v)], [&](size_t i) {
      const Node& n = g_.nodes()[i];
      if (n.op->renames) return only_for_swap(n.out[0]);
      return is_elementwise(n) || n.op->copy != nullptr;
    });
  }

  const Graph& g_;
  std::vector<std::vector<size_t>> readers_;  // nodes, by value
  std::set<int32_t> kept_;                    // outputs and updates
  std::map<int32_t, Value> hoisted_;          // what becomes of concatenations
};

}  // namespace

Graph hoist_swaps(const Graph& g) { return Hoister(g).run(); }

}  // namespace ebb
