#include "passes/views/hoist_views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/expr_inputs.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/swaps.h"
#include "passes/expression_node.h"
#include "passes/simplify.h"
#include "passes/views/operand_views.h"

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

  // None where there is nothing to hoist.
  std::optional<Graph> run() {
    Rewriter rw(g_);
    rw.copy_sources();
    bool any = false;
    for (const Node& n : g_.nodes()) {
      const std::optional<SwapView> view =
          n.out.size() == 1 ? of_pointwise(n.out[0]) : std::nullopt;
      if (view) {
        any = true;
        const AtScope scope(rw.to(), n.at);
        const Value y = swapped(rw, *view);
        rw.set(n.out[0], ops::reshape(y, g_.type(n.out[0]).shape));
        hoisted_.emplace(n.out[0], y);
      } else if (const auto known = hoisted_.find(root_of(g_, n.out[0]));
                 known != hoisted_.end() && n.op->renames) {
        // no shape lies between it and its readers
        rw.set(n.out[0], ops::reshape(known->second, g_.type(n.out[0]).shape));
      } else {
        rw.copy(n);
      }
    }
    if (!any) return {};
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  // The pointwise result that the view swaps, of swapped operands.
  Value swapped(Rewriter& rw, const SwapView& view) const {
    const ExpressionNode pointwise = *expression_node_of(g_, *producer(g_, view.base));
    const auto k =
        static_cast<size_t>(std::ranges::find(pointwise.out, view.base) - pointwise.out.begin());
    ExpressionNode one = pointwise;
    const Scalar result[] = {one.expr.apply(inputs_as_scalars(one.expr.inputs()))[k]};
    one.expr = Expr(one.expr.inputs(), result);
    one.dtypes = {pointwise.dtypes[k]};
    one.drop_unused_operands();
    std::vector<Value> in = rw.map(one.in);
    for (Value& x : in)
      if (x.shape().rank() > 0 && x.shape()[-1] != 1) x = ops::swap_runs(x, view.run);
    const Node made = one.node();
    return rw.to().add(*made.op, made.attrs, in)[0];
  }
  // The concatenation of a swap of a pointwise result.
  std::optional<SwapView> of_pointwise(int32_t v) const {
    const std::optional<SwapView> view = swap_of(g_, v);
    if (!view || g_.producer(v) != static_cast<int32_t>(view->node)) return {};
    const Node* const base = producer(g_, view->base);
    if (!base || !is_elementwise(*base)) return {};
    const int64_t width = g_.type(view->base).shape[-1];
    for (const int32_t x : base->in) {
      const Shape& s = g_.type(x).shape;
      if (s.rank() > 0 && s[-1] != 1 && s[-1] != width) return {};
    }
    return only_for_swap(view->base, is_lossless_cast(g_, *base)) ? view : std::nullopt;
  }
  // Whether only pointwise nodes and copies, as of a swap, read `v`, under any shape; and sums, if
  // it is another dtype of what they could read as well.
  bool only_for_swap(int32_t v, bool is_cast) const {
    if (kept_.contains(v)) return false;
    return std::ranges::all_of(readers_[static_cast<size_t>(v)], [&](size_t i) {
      const Node& n = g_.nodes()[i];
      if (n.op->renames) return only_for_swap(n.out[0], is_cast);
      return is_elementwise(n) || n.op->copy != nullptr || (is_cast && expression_node_of(g_, n));
    });
  }

  const Graph& g_;
  std::vector<std::vector<size_t>> readers_;  // nodes, by value
  std::set<int32_t> kept_;                    // outputs and updates
  std::map<int32_t, Value> hoisted_;          // what becomes of concatenations
};

}  // namespace

// What is hoisted over one node may stand behind another one.
Graph hoist_swaps(const Graph& g) {
  Graph out = g;
  for (;;) {
    std::optional<Graph> next = Hoister(out).run();
    if (!next) return out;
    out = common_subexpressions(*next);
  }
}

}  // namespace ebb
