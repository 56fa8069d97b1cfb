#include "passes/slices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ops/loop/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/split/op.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

// By input: the slice that a node reads as a strided view.
using Views = std::map<size_t, SliceView>;

class SliceElider {
 public:
  SliceElider(const Graph& g, const std::function<bool(const Signature&)>& supports)
      : g_(g), supports_(supports) {}

  Graph run() {
    find_slices();
    if (slices_.empty()) return g_;
    for (size_t i = 0; i < g_.nodes().size(); ++i) find_views(i);
    find_others();
    for (auto& [i, views] : views_)
      std::erase_if(views, [&](const auto& f) { return others_.contains(f.second.node); });
    std::erase_if(views_, [](const auto& f) { return f.second.empty(); });
    return views_.empty() ? g_ : rebuild();
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }

  // ---- what is a view ---------------------------------------------------------------------------

  void find_slices() {
    for (const Node& n : g_.nodes()) {
      for (const int32_t v : n.out)
        if (const auto view = slice_view_of(g_, v)) slices_[v] = *view;
      if (passes_on(n)) slices_[n.out[0]] = slices_.at(n.in[0]);
    }
  }
  // A reshape that keeps the last dim of a slice.
  bool passes_on(const Node& n) const {
    return n.op == &ops::def::reshape() && slices_.contains(n.in[0]) &&
           shape(n.out[0]).rank() > 0 && shape(n.out[0])[-1] == shape(n.in[0])[-1];
  }

  // ---- their readers ---------------------------------------------------------------------------

  void find_views(size_t i) {
    const Node& n = node(i);
    const std::optional<ops::Loop> loop = ops::loop_of(g_, n);
    if (!loop || !loop->slices.operands.empty()) return;
    const auto is_segment = [&](size_t in) {
      return loop->segments.has_in(operand_of(loop->segments, in));
    };
    Views views;
    for (size_t k = 0; k < n.in.size(); ++k) {
      const auto view = slices_.find(n.in[k]);
      if (view == slices_.end() || is_segment(k) || !worth(view->second)) continue;
      Views more = views;
      more[k] = view->second;
      if (supports_(rewritten(i, more))) views = std::move(more);
    }
    if (!views.empty()) views_[i] = views;
  }
  // Whether the view allows vector accesses as wide as the copy would.
  bool worth(const SliceView& c) const {
    constexpr int64_t widest = 8;
    const int64_t copy = std::gcd(widest, c.end - c.begin);
    return std::gcd(copy, std::gcd(c.begin, shape(c.base)[-1])) == copy;
  }

  // Slices that another node reads as well are copied for it, and the copy is used by all readers.
  void find_others() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (passes_on(node(i))) continue;
      const auto views = views_.find(i);
      for (size_t k = 0; k < node(i).in.size(); ++k)
        if (views == views_.end() || !views->second.contains(k)) add_other(node(i).in[k]);
    }
    for (const NamedValue& o : g_.outputs()) add_other(o.value);
    for (const NamedValue& u : g_.updates()) add_other(u.value);
  }
  void add_other(int32_t v) {
    if (const auto view = slices_.find(v); view != slices_.end()) others_.insert(view->second.node);
  }

  // ---- the new nodes ---------------------------------------------------------------------------

  // The sliced tensor, in the shape of which the slice is a strided view.
  Shape base_shape(int32_t read, const SliceView& c) const {
    Shape s = shape(read);
    s[-1] = shape(c.base)[-1];
    return s;
  }

  Signature rewritten(size_t i, const Views& views) const {
    const Node& n = node(i);
    Signature s = g_.signature(n);
    ops::Loop a = *ops::loop_of(g_, n);
    for (const auto& [k, view] : views) {
      a.slices.add(operand_of(a.segments, k), view.begin, view.end);
      s.in[k].shape = base_shape(n.in[k], view);
    }
    s.op = &ops::def::loop();
    s.attrs = a;
    return s;
  }

  Graph rebuild() const {
    Rewriter rw(g_);
    rw.copy_sources();
    std::map<std::pair<int32_t, std::vector<int64_t>>, Value> bases;  // by value and shape
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = node(i);
      const auto views = views_.find(i);
      if (views == views_.end()) {
        rw.copy(n);
        continue;
      }
      const AtScope scope(rw.to(), n.at);
      std::vector<Value> in = rw.map(n.in);
      for (const auto& [k, view] : views->second) {
        const Shape as = base_shape(n.in[k], view);
        Value& base = bases[{view.base, as.sizes()}];
        if (!base) base = ops::reshape(rw.map(view.base), as);
        in[k] = base;
      }
      const Signature s = rewritten(i, views->second);
      const auto out = rw.to().add(*s.op, s.attrs, in);
      for (size_t k = 0; k < out.size(); ++k) rw.set(n.out[k], out[k]);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

  const Graph& g_;
  const std::function<bool(const Signature&)>& supports_;
  std::map<int32_t, SliceView> slices_;  // by value
  std::map<size_t, Views> views_;        // by node
  std::set<size_t> others_;              // slices that another reader needs as a copy
};

}  // namespace

std::optional<SliceView> slice_view_of(const Graph& g, int32_t v) {
  if (g.producer(v) < 0) return {};
  const auto node = static_cast<size_t>(g.producer(v));
  const Node& n = g.nodes()[node];
  const auto is_last = [&](int64_t dim) {
    const Shape& full = g.type(n.in[0]).shape;
    return dim == full.rank() - 1 && full.numel() > 0;
  };
  if (n.op == &ops::def::slice()) {
    const auto& a = n.attrs.as<ops::Slice>();
    if (is_last(a.dim)) return SliceView{node, n.in[0], a.begin, a.end};
  } else if (n.op == &ops::def::split() && is_last(n.attrs.as<ops::Split>().dim)) {
    const int64_t width = g.type(v).shape[-1], k = std::ranges::find(n.out, v) - n.out.begin();
    return SliceView{node, n.in[0], k * width, (k + 1) * width};
  }
  return {};
}

int32_t root_of(const Graph& g, int32_t v) {
  for (int32_t n = g.producer(v); n >= 0; n = g.producer(v)) {
    const Node& node = g.nodes()[static_cast<size_t>(n)];
    if (node.op != &ops::def::reshape()) break;
    v = node.in[0];
  }
  return v;
}

Graph elide_slices(const Graph& g, const std::function<bool(const Signature&)>& supports) {
  return SliceElider(g, supports).run();
}

}  // namespace ebb
