#include "passes/operand_views.h"

#include <algorithm>
#include <numeric>

namespace ebb {
namespace {

// A copy, and how a loop reads its result in place.
struct View {
  size_t copy = 0;  // the node
  std::function<LoopNode(LoopNode, size_t input)> read;
};
// Of a value that a copy gives; none of others.
using ViewOf = std::function<std::optional<View>(int32_t)>;

class OperandReader {
 public:
  OperandReader(ViewedGraph& v, const Supports& supports, const ViewOf& view_of)
      : v_(v), supports_(supports) {
    for (size_t i = 0; i < v.size(); ++i)
      for (const int32_t out : v.node(i).out)
        if (auto view = view_of(out); view && !v.is_elided(view->copy)) views_[out] = *view;
  }
  void run() {
    if (views_.empty()) return;
    for (size_t i = 0; i < v_.size(); ++i) find_inputs(i);
    find_copied();
    for (const auto& [i, inputs] : inputs_) replace(i, inputs);
    v_.elide_unread();
  }

 private:
  void find_inputs(size_t i) {
    std::optional<LoopNode> l = v_.loop(i);
    if (!l) return;
    for (size_t k = 0; k < l->in.size(); ++k) {
      const auto view = views_.find(l->in[k].value);
      if (view == views_.end() || l->is_viewed(k)) continue;
      LoopNode more = view->second.read(*l, k);
      if (!supports_(more.signature(v_.graph()))) continue;
      l = std::move(more);
      inputs_[i].insert(k);
    }
  }

  // What another node reads as well is copied for it, and the copy is used by all readers.
  void find_copied() {
    const auto copy = [&](int32_t v) {
      if (const auto view = views_.find(v); view != views_.end()) copied_.insert(view->second.copy);
    };
    for (size_t i = 0; i < v_.size(); ++i) {
      if (v_.node(i).op->renames && views_.contains(v_.node(i).out[0])) continue;
      const std::vector<int32_t> in = v_.reads(i);
      for (size_t k = 0; k < in.size(); ++k)
        if (!inputs_.contains(i) || !inputs_.at(i).contains(k)) copy(in[k]);
    }
    for (const auto& [v, view] : views_)
      if (v_.is_kept(v)) copied_.insert(view.copy);
  }

  void replace(size_t i, const std::set<size_t>& inputs) {
    LoopNode l = *v_.loop(i);
    bool viewed = false;
    for (const size_t k : inputs) {
      const View& view = views_.at(l.in[k].value);
      if (copied_.contains(view.copy)) continue;
      l = view.read(std::move(l), k);
      viewed = true;
    }
    if (viewed) v_.replace(i, std::move(l));
  }

  ViewedGraph& v_;
  const Supports& supports_;
  std::map<int32_t, View> views_;              // by value
  std::map<size_t, std::set<size_t>> inputs_;  // by loop: those that it may read through views
  std::set<size_t> copied_;                    // copies that stay
};

// Whether columns of a tensor allow vector accesses as wide as a copy of them would.
bool worth_columns(const Graph& g, const SliceView& view) {
  constexpr int64_t widest = 8;
  const int64_t copy = std::gcd(widest, view.end - view.begin);
  return std::gcd(copy, std::gcd(view.begin, g.type(view.base).shape[-1])) == copy;
}

// Whether pairs of runs fill the last dim of a value.
bool fills(const Graph& g, int32_t v, int64_t run) {
  const Shape& s = g.type(v).shape;
  return run > 0 && s.rank() > 0 && s[-1] > 0 && s[-1] % (2 * run) == 0;
}

}  // namespace

void view_columns(ViewedGraph& v, const Supports& supports) {
  const Graph& g = v.graph();
  const auto view_of = [&](int32_t value) -> std::optional<View> {
    const std::optional<SliceView> s = columns_of(g, row_root_of(g, value));
    if (!s || !worth_columns(g, *s)) return {};
    return View{s->node, [&g, s](LoopNode l, size_t input) {
                  return reading_slice(g, std::move(l), input, *s);
                }};
  };
  OperandReader(v, supports, view_of).run();
}

void view_swaps(ViewedGraph& v, const Supports& supports) {
  const Graph& g = v.graph();
  const auto view_of = [&](int32_t value) -> std::optional<View> {
    const std::optional<SwapView> s = swap_of(g, value);
    if (!s || !fills(g, value, s->run)) return {};
    return View{s->node, [s](LoopNode l, size_t input) {
                  return reading_swap(std::move(l), input, s->base, s->run);
                }};
  };
  OperandReader(v, supports, view_of).run();
}

std::optional<SwapView> swap_of(const Graph& g, int32_t v) {
  const int32_t node = g.producer(root_of(g, v));
  if (node < 0) return {};
  const Node& concat = g.nodes()[static_cast<size_t>(node)];
  for (int64_t dim = 0; dim < g.type(concat.out[0]).shape.rank(); ++dim) {
    const std::vector<int32_t> parts = concatenated(g, concat, dim);
    if (parts.size() != 2) continue;
    const auto second = slice_of(g, parts[0]), first = slice_of(g, parts[1]);
    if (!first || !second || first->base != second->base || first->dim != dim || second->dim != dim)
      return {};
    const Shape& whole = g.type(first->base).shape;
    if (first->begin != 0 || first->end != second->begin || second->end != 2 * first->end ||
        second->end != whole[dim])
      return {};
    SwapView view{static_cast<size_t>(node), root_of(g, first->base), first->end};
    for (int64_t d = dim + 1; d < whole.rank(); ++d) view.run *= whole[d];
    return fills(g, view.base, view.run) ? std::optional(view) : std::nullopt;
  }
  return {};
}

}  // namespace ebb
