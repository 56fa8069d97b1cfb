#include "passes/views/operand_views.h"

#include <algorithm>
#include <numeric>

namespace ebb {
namespace {

// A copy, and how a loop reads its result in place; none: not under the shape that it reads.
struct View {
  size_t copy = 0;  // the node
  std::function<std::optional<LoopNode>(LoopNode, size_t input)> read;
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
      if (view == views_.end()) continue;
      std::optional<LoopNode> more = view->second.read(*l, k);
      if (!more || !supports_(more->signature(v_.graph()))) continue;
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
      l = *view.read(std::move(l), k);
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

// A slice in elements: in every block of `width` of its base, [begin, end).
struct Blocks {
  int64_t width = 0, begin = 0, end = 0;
};
Blocks blocks_of(const Graph& g, const SliceView& view) {
  const Shape& whole = g.type(view.base).shape;
  const int64_t step = whole.slice(view.dim + 1, whole.rank()).numel();
  return {whole[view.dim] * step, view.begin * step, view.end * step};
}

// Whether slices of a tensor allow vector accesses as wide as a copy of them would.
bool worth_reading(const Blocks& b) {
  constexpr int64_t widest = 8;
  const int64_t copy = std::gcd(widest, b.end - b.begin);
  return std::gcd(copy, std::gcd(b.begin, b.width)) == copy;
}

// The loop that reads its input `in`, which is these blocks of `base`, in place: as a range of the
// dim that with those behind it makes up a block.
std::optional<LoopNode> reading_blocks(LoopNode l, size_t in, int32_t base, const Blocks& b) {
  const size_t operand = operand_of(l.loop.segments, in);
  if (l.loop.segments.has_in(operand) || l.loop.slices.of(operand)) return {};
  const Shape& shape = l.in[in].shape;
  int64_t step = 1;
  for (int64_t dim = -1; - dim <= shape.rank(); step *= shape[dim--]) {
    if (step * shape[dim] != b.end - b.begin || b.width % step != 0 || b.begin % step != 0)
      continue;
    const OperandSlice slice{base, dim, b.begin / step, b.end / step, b.width / step};
    return reading_slice(std::move(l), in, slice);
  }
  return {};
}

// Whether pairs of runs fill the last dim of a value.
bool fills(const Graph& g, int32_t v, int64_t run) {
  const Shape& s = g.type(v).shape;
  return run > 0 && s.rank() > 0 && s[-1] > 0 && s[-1] % (2 * run) == 0;
}

}  // namespace

void view_slices(ViewedGraph& v, const Supports& supports) {
  const Graph& g = v.graph();
  const auto view_of = [&](int32_t value) -> std::optional<View> {
    const std::optional<SliceView> s = slice_of(g, root_of(g, value));
    if (!s || g.type(value).shape.numel() == 0) return {};
    const Blocks blocks = blocks_of(g, *s);
    if (!worth_reading(blocks) || is_range(g, *s)) return {};
    return View{s->node, [base = s->base, blocks](LoopNode l, size_t input) {
                  return reading_blocks(std::move(l), input, base, blocks);
                }};
  };
  OperandReader(v, supports, view_of).run();
}

void view_swaps(ViewedGraph& v, const Supports& supports) {
  const Graph& g = v.graph();
  const auto view_of = [&](int32_t value) -> std::optional<View> {
    const std::optional<SwapView> s = swap_of(g, value);
    if (!s || !fills(g, value, s->run)) return {};
    return View{s->node, [s](LoopNode l, size_t input) -> std::optional<LoopNode> {
                  if (l.is_viewed(input)) return {};
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
