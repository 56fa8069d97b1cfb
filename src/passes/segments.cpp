#include "passes/segments.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ir/expr_inputs.h"
#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb {
namespace {

// The views that a node reads and writes.
struct Views {
  ops::Segments segments;
  std::vector<int32_t> also;  // concatenations that it reads by segments and writes in full
};

class ConcatSliceElider {
 public:
  ConcatSliceElider(const Graph& g, const std::function<bool(const Signature&)>& supports)
      : g_(g), supports_(supports) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      for (const int32_t v : g.nodes()[i].in) readers_[v].insert(i);
    for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
    for (const NamedValue& u : g.updates()) kept_.insert(u.value);
  }

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (shape_of(n)) find_results(i);
      if (n.op == &ops::def::concat()) find_operands(n);
    }
    return views_.empty() ? g_ : rebuild();
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }
  const std::set<size_t>& readers(int32_t v) const {
    static const std::set<size_t> none;
    const auto at = readers_.find(v);
    return at == readers_.end() ? none : at->second;
  }

  // The shape of the tensors that a node may read or write by segments; none for other nodes.
  std::optional<Shape> shape_of(const Node& n) const {
    const std::optional<ops::Loop> loop = ops::loop_of(g_, n);
    if (!loop || !loop->segments.widths.empty() || kind_of(*loop) == ops::LoopKind::rows) return {};
    return Shape(loop->shape);
  }

  // ---- slices ----------------------------------------------------------------------------------

  // The slices that tile the last dim of `v`, in order, if they are its only readers; else none.
  std::vector<size_t> tiling_slices(int32_t v) const {
    std::vector<size_t> slices(readers(v).begin(), readers(v).end());
    if (kept_.contains(v) || slices.size() < 2) return {};
    const auto attrs = [&](size_t i) { return node(i).attrs.as<ops::Slice>(); };
    for (const size_t i : slices)
      if (node(i).op != &ops::def::slice() || attrs(i).dim != shape(v).rank() - 1) return {};
    std::ranges::sort(slices, {}, [&](size_t i) { return attrs(i).begin; });
    int64_t end = 0;
    for (const size_t i : slices) {
      if (attrs(i).begin != end || attrs(i).end == end) return {};
      end = attrs(i).end;
    }
    return end == shape(v)[-1] ? slices : std::vector<size_t>{};
  }

  // The results of node `i` that are read by equal segments.
  void find_results(size_t i) {
    Views views = views_of(i);
    ops::Segments& segments = views.segments;
    for (size_t k = 0; k < node(i).out.size(); ++k) {
      if (!may_be_sliced(node(i), k)) continue;
      std::vector<int64_t> widths;
      for (const size_t s : tiling_slices(node(i).out[k]))
        widths.push_back(shape(node(s).out[0])[-1]);
      if (!worth_segments(widths) || (!segments.widths.empty() && segments.widths != widths))
        continue;
      segments.widths = widths;
      segments.segmented_out.push_back(static_cast<int64_t>(k));
    }
    if (!segments.segmented_out.empty() && supports_(rewritten(i, views).sig)) views_[i] = views;
  }

  bool may_be_sliced(const Node& n, size_t result) const {
    return ops::loop_of(g_, n)->results[result].extent == ops::Extent::element;
  }

  // ---- concatenations --------------------------------------------------------------------------

  // All readers of a concatenation read its segments, or the first does and writes it for the
  // others.
  void find_operands(const Node& concat) {
    const int32_t whole = concat.out[0];
    if (concat.attrs.as<ops::Concat>().dim != shape(whole).rank() - 1 || readers(whole).empty())
      return;
    std::map<size_t, Views> all;
    for (const size_t r : readers(whole))
      if (const auto views = read_by_segments(r, concat)) all[r] = *views;
    if (all.size() < readers(whole).size() || kept_.contains(whole)) {
      const size_t first = *readers(whole).begin();
      if (!all.contains(first)) return;
      Views views = all[first];
      views.also.push_back(whole);
      all = {{first, views}};
    }
    for (const auto& [r, views] : all)
      if (!supports_(rewritten(r, views).sig)) return;
    for (const auto& [r, views] : all) views_[r] = views;
  }

  // Node `i` reading the segments of a concatenation.
  std::optional<Views> read_by_segments(size_t i, const Node& concat) const {
    const Node& n = node(i);
    const int32_t whole = concat.out[0];
    if (shape_of(n) != shape(whole)) return {};
    std::vector<int64_t> widths;
    for (const int32_t v : concat.in) widths.push_back(shape(v)[-1]);
    if (!worth_segments(widths)) return {};
    Views views = views_of(i);
    if (!views.segments.widths.empty() && views.segments.widths != widths) return {};
    views.segments.widths = widths;
    for (size_t k = 0; k < n.in.size(); ++k)
      if (n.in[k] == whole) views.segments.segmented_in.push_back(static_cast<int64_t>(k));
    std::ranges::sort(views.segments.segmented_in);
    return views;
  }

  // ---- the new nodes -------------------------------------------------------------------------

  Views views_of(size_t i) const {
    const auto at = views_.find(i);
    return at == views_.end() ? Views{} : at->second;
  }

  struct Rewritten {
    Signature sig;
    std::vector<int32_t> in;
  };
  Rewritten rewritten(size_t i, const Views& views) const {
    const Node& n = node(i);
    ops::Loop a = *ops::loop_of(g_, n);
    a.expr = with_inputs(a.expr, n, views.also);
    for (const int32_t v : views.also) a.results.push_back({g_.type(v).dtype});
    a.segments = views.segments;
    Rewritten f{{&ops::def::loop(), a, {}, {}, n.at}, {}};
    for (size_t k = 0; k < n.in.size(); ++k) {
      const std::vector<int32_t> whole = {n.in[k]};
      const auto& in =
          views.segments.has_in(k) ? node(static_cast<size_t>(g_.producer(n.in[k]))).in : whole;
      f.in.insert(f.in.end(), in.begin(), in.end());
    }
    for (const int32_t v : f.in) f.sig.in.push_back(g_.type(v));
    f.sig.out = f.sig.op->infer(f.sig);
    return f;
  }

  // The expression with some of its inputs as further results.
  static Expr with_inputs(const Expr& e, const Node& n, const std::vector<int32_t>& also) {
    const std::vector<Scalar> x = inputs_as_scalars(e);
    std::vector<Scalar> results = e.apply(x);
    for (const int32_t v : also)
      results.push_back(x[static_cast<size_t>(std::ranges::find(n.in, v) - n.in.begin())]);
    return Expr(e.inputs(), results);
  }

  void place(size_t i, const Views& views, Rewriter& rw) const {
    const AtScope scope(rw.to(), node(i).at);
    const Rewritten f = rewritten(i, views);
    const auto out = rw.to().add(*f.sig.op, f.sig.attrs, rw.map(f.in));
    size_t at = 0;
    for (size_t k = 0; k < node(i).out.size(); ++k) {
      if (!views.segments.has_out(k)) {
        rw.set(node(i).out[k], out[at++]);
        continue;
      }
      for (const size_t s : tiling_slices(node(i).out[k])) rw.set(node(s).out[0], out[at++]);
    }
    for (const int32_t v : views.also) rw.set(v, out[at++]);
  }

  Graph rebuild() const {
    std::set<int32_t> cut, joined;  // values written, read by segments
    for (const auto& [i, views] : views_) {
      for (const int64_t k : views.segments.segmented_out)
        cut.insert(node(i).out[static_cast<size_t>(k)]);
      for (const int64_t k : views.segments.segmented_in)
        joined.insert(node(i).in[static_cast<size_t>(k)]);
    }
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = node(i);
      const auto at = views_.find(i);
      if (at != views_.end())
        place(i, at->second, rw);
      else if (!(n.op == &ops::def::slice() && cut.contains(n.in[0])) &&
               !(n.op == &ops::def::concat() && joined.contains(n.out[0])))
        rw.copy(n);
    }
    rw.copy_ends();
    return rw.take();
  }

  const Graph& g_;
  const std::function<bool(const Signature&)>& supports_;
  std::map<int32_t, std::set<size_t>> readers_;  // nodes that read a value
  std::set<int32_t> kept_;                       // outputs and updates
  std::map<size_t, Views> views_;                // by node
};

}  // namespace

bool worth_segments(const std::vector<int64_t>& widths) {
  constexpr int64_t few = 4;
  int64_t whole = 0, common = 0;
  for (const int64_t w : widths) {
    if (w == 0) return false;
    whole += w;
    common = std::gcd(common, w);
  }
  return widths.size() > 1 && (common % few == 0 || whole % few != 0);
}

Graph elide_concat_slice(const Graph& g, const std::function<bool(const Signature&)>& supports) {
  return ConcatSliceElider(g, supports).run();
}

}  // namespace ebb
