#include "passes/swaps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

const Node* producer(const Graph& g, int32_t v) {
  return g.producer(v) < 0 ? nullptr : &g.nodes()[static_cast<size_t>(g.producer(v))];
}

bool is_reshape(const Node* n) { return n && n->op == &ops::def::reshape(); }

// The value that `v` is under another shape.
int32_t unshaped(const Graph& g, int32_t v) {
  for (const Node* n = producer(g, v); is_reshape(n); n = producer(g, v)) v = n->in[0];
  return v;
}

// Whether pairs of runs fill the last dim of a value.
bool fills(const Graph& g, int32_t v, int64_t run) {
  const Shape& s = g.type(v).shape;
  return run > 0 && s.rank() > 0 && s[-1] > 0 && s[-1] % (2 * run) == 0;
}

// A value that is `base`, flat, with neighbouring runs in each other's place; `swap` concatenates.
struct SwapView {
  int32_t base = -1, swap = -1;
  int64_t run = 0;
};

// None unless pairs of runs fill the last dim of the base.
std::optional<SwapView> swap_view_of(const Graph& g, int32_t v) {
  const int32_t swap = unshaped(g, v);
  const Node* const concat = producer(g, swap);
  if (!concat || concat->op != &ops::def::concat() || concat->in.size() != 2) return {};
  const int64_t dim = concat->attrs.as<ops::Concat>().dim;
  const Node *const second = producer(g, concat->in[0]), *const first = producer(g, concat->in[1]);
  for (const Node* n : {first, second})
    if (!n || n->op != &ops::def::slice() || n->in[0] != first->in[0]) return {};
  const Shape& whole = g.type(first->in[0]).shape;
  const auto &a = first->attrs.as<ops::Slice>(), &b = second->attrs.as<ops::Slice>();
  if (a.dim != dim || b.dim != dim || a.begin != 0 || a.end != b.begin || b.end != 2 * a.end ||
      b.end != whole[dim])
    return {};
  SwapView view{unshaped(g, first->in[0]), swap, a.end};
  for (int64_t d = dim + 1; d < whole.rank(); ++d) view.run *= whole[d];
  if (!fills(g, view.base, view.run)) return {};
  return view;
}

// ---- before fusion -----------------------------------------------------------------------------

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
    }
    if (!any) return g_;
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  // The concatenation of a swap of a pointwise result.
  std::optional<SwapView> of_pointwise(int32_t v) const {
    const std::optional<SwapView> view = swap_view_of(g_, v);
    if (!view || view->swap != v) return {};
    const Node* const base = producer(g_, view->base);
    if (!base || base->op != &ops::def::pointwise() || base->out.size() != 1) return {};
    const int64_t width = g_.type(view->base).shape[-1];
    for (const int32_t x : base->in) {
      const Shape& s = g_.type(x).shape;
      if (s.rank() > 0 && s[-1] != 1 && s[-1] != width) return {};
    }
    return only_for_swap(view->base) ? view : std::nullopt;
  }
  // Whether only pointwise nodes and the slices of a swap read `v`, under any shape.
  bool only_for_swap(int32_t v) const {
    if (kept_.contains(v)) return false;
    return std::ranges::all_of(readers_[static_cast<size_t>(v)], [&](size_t i) {
      const Node& n = g_.nodes()[i];
      if (is_reshape(&n)) return only_for_swap(n.out[0]);
      return n.op == &ops::def::pointwise() || n.op == &ops::def::slice();
    });
  }

  const Graph& g_;
  std::vector<std::vector<size_t>> readers_;  // nodes, by value
  std::set<int32_t> kept_;                    // outputs and updates
};

// ---- behind it ---------------------------------------------------------------------------------

class SwapElider {
 public:
  SwapElider(const Graph& g, const std::function<bool(const Signature&)>& supports)
      : g_(g), supports_(supports) {}

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) find_views(i);
    find_copied();
    for (auto& [i, views] : views_)
      std::erase_if(views, [&](const auto& v) { return copied_.contains(v.second.swap); });
    std::erase_if(views_, [](const auto& v) { return v.second.empty(); });
    return views_.empty() ? g_ : rebuild();
  }

 private:
  using Views = std::map<size_t, SwapView>;  // by input

  void find_views(size_t i) {
    const Node& n = g_.nodes()[i];
    const std::optional<ops::Loop> loop = ops::loop_of(g_, n);
    if (!loop || !loop->swaps.empty()) return;
    Views views;
    for (size_t k = 0; k < n.in.size(); ++k) {
      const std::optional<SwapView> view = swap_view_of(g_, n.in[k]);
      const size_t operand = operand_of(loop->segments, k);
      if (!view || !fills(g_, n.in[k], view->run) || loop->segments.has_in(operand) ||
          loop->slices.of(operand))
        continue;
      Views more = views;
      more[k] = *view;
      if (supports_(rewritten(i, more))) views = std::move(more);
    }
    if (!views.empty()) views_[i] = std::move(views);
  }
  // Swaps that another node reads as well are copied for it, and the copy is used by all readers.
  void find_copied() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (is_reshape(&n)) continue;
      const auto views = views_.find(i);
      for (size_t k = 0; k < n.in.size(); ++k)
        if (views == views_.end() || !views->second.contains(k))
          copied_.insert(unshaped(g_, n.in[k]));
    }
    for (const auto* ends : {&g_.outputs(), &g_.updates()})
      for (const NamedValue& e : *ends) copied_.insert(unshaped(g_, e.value));
  }

  Signature rewritten(size_t i, const Views& views) const {
    const Node& n = g_.nodes()[i];
    Signature s = g_.signature(n);
    ops::Loop a = *ops::loop_of(g_, n);
    for (const auto& [k, view] : views) a.swaps.add(operand_of(a.segments, k), view.run);
    s.op = &ops::def::loop();
    s.attrs = a;
    return s;
  }

  Graph rebuild() const {
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      const auto views = views_.find(i);
      if (views == views_.end()) {
        rw.copy(n);
        continue;
      }
      const AtScope scope(rw.to(), n.at);
      std::vector<Value> in = rw.map(n.in);
      for (const auto& [k, view] : views->second)
        in[k] = ops::reshape(rw.map(view.base), g_.type(n.in[k]).shape);
      const Signature s = rewritten(i, views->second);
      const auto out = rw.to().add(*s.op, s.attrs, in);
      for (size_t k = 0; k < out.size(); ++k) rw.set(n.out[k], out[k]);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

  const Graph& g_;
  const std::function<bool(const Signature&)>& supports_;
  std::map<size_t, Views> views_;  // by node
  std::set<int32_t> copied_;       // swaps that another reader needs as a copy
};

}  // namespace

Graph hoist_swaps(const Graph& g) { return Hoister(g).run(); }

Graph elide_swaps(const Graph& g, const std::function<bool(const Signature&)>& supports) {
  return SwapElider(g, supports).run();
}

}  // namespace ebb
