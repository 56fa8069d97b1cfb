#include "passes/views/elide_copies.h"

#include <algorithm>
#include <numeric>

#include "passes/expression_node.h"
#include "passes/views/operand_views.h"
#include "passes/views/strided_views.h"

namespace ebb {
namespace {

// Whether segments of these values' widths allow vector accesses as wide as the full tensor would,
// or at least of a few elements: a copy is faster than many narrow accesses.
bool worth_segments(const Graph& g, const std::vector<int32_t>& segments) {
  constexpr int64_t few = 4;
  int64_t whole = 0, common = 0;
  for (const int32_t v : segments) {
    const int64_t width = g.type(v).shape[-1];
    if (width == 0) return false;
    whole += width;
    common = std::gcd(common, width);
  }
  return segments.size() > 1 && (common % few == 0 || whole % few != 0);
}

// ---- segments ----------------------------------------------------------------------------------

class SegmentFinder {
 public:
  SegmentFinder(ViewedGraph& v, const Supports& supports)
      : v_(v), g_(v.graph()), supports_(supports) {
    for (size_t i = 0; i < v.size(); ++i)
      for (const int32_t in : v.reads(i)) readers_[in].insert(i);
  }
  void run() {
    for (size_t i = 0; i < v_.size(); ++i) {
      if (v_.is_elided(i)) continue;
      write_segments(i);
      const std::vector<int32_t> segments = concatenated(g_, v_.node(i), -1);
      if (worth_segments(g_, segments))
        read_segments(i, segments);
      else if (const auto tokens = token_segments(i))
        read_tokens(i, *tokens);
    }
  }

 private:
  const std::set<size_t>& readers(int32_t v) const {
    static const std::set<size_t> none;
    const auto at = readers_.find(v);
    return at == readers_.end() ? none : at->second;
  }
  // A node that may read or write tensors of its own shape by segments; none of other nodes.
  std::optional<LoopNode> segmentable(size_t i) const {
    const std::optional<LoopNode> before = loop_node_of(g_, v_.node(i));
    if (!before || !before->loop.segments.widths.empty()) return {};
    std::optional<LoopNode> l = v_.loop(i);
    const bool takes = l && l->loop.swaps.empty() && kind_of(l->loop) != ops::LoopKind::rows;
    return takes ? l : std::nullopt;
  }
  bool fits(const LoopNode& l, std::span<const int32_t> segments) const {
    const std::vector<int64_t>& widths = l.loop.segments.widths;
    return widths.empty() ||
           std::ranges::equal(widths, segments, {}, {}, [&](int32_t v) { return v_.shape(v)[-1]; });
  }

  // The slices that tile the last dim of `v`, in order, if nothing else reads it; else none.
  std::vector<SliceView> tiling_slices(int32_t v) const {
    std::vector<SliceView> all;
    for (const size_t i : readers(v)) {
      const std::vector<SliceView> some = columns_of_results(g_, i);
      if (some.empty()) return {};
      all.insert(all.end(), some.begin(), some.end());
    }
    if (v_.is_kept(v) || all.size() < 2) return {};
    std::ranges::sort(all, {}, &SliceView::begin);
    int64_t end = 0;
    for (const SliceView& s : all) {
      if (s.begin != end || s.end == end) return {};
      end = s.end;
    }
    return end == v_.shape(v)[-1] ? all : std::vector<SliceView>{};
  }

  // Results of a loop that are read by equal segments.
  void write_segments(size_t i) {
    std::optional<LoopNode> l = segmentable(i);
    if (!l) return;
    std::set<size_t> slices;
    const std::vector<int32_t>& results = v_.node(i).out;
    for (size_t k = 0; k < results.size(); ++k) {
      if (l->loop.results[k].extent != ops::Extent::element) continue;
      std::vector<int32_t> segments;
      std::set<size_t> nodes;
      for (const SliceView& s : tiling_slices(results[k])) {
        nodes.insert(s.node);
        segments.push_back(s.value);
      }
      if (!worth_segments(g_, segments) || !fits(*l, segments)) continue;
      l = writing_segments(g_, std::move(*l), k, segments);
      slices.merge(nodes);
    }
    if (slices.empty() || !supports_(l->signature(g_))) return;
    v_.replace(i, std::move(*l));
    for (const size_t s : slices) v_.elide(s);
  }

  // All readers of a concatenation read its segments, or the first does and writes it for the
  // others.
  void read_segments(size_t concat, const std::vector<int32_t>& segments) {
    const int32_t whole = v_.node(concat).out[0];
    const std::set<size_t>& readers = this->readers(whole);
    std::map<size_t, LoopNode> all;
    for (const size_t r : readers)
      if (auto l = segmentable(r);
          l && Shape(l->loop.shape) == v_.shape(whole) && fits(*l, segments))
        all.emplace(r, reading_segments(g_, std::move(*l), whole, segments));
    if (readers.empty() || !all.contains(*readers.begin())) return;
    if (all.size() < readers.size() || v_.is_kept(whole)) {
      const size_t first = *readers.begin();
      const auto& in = v_.node(first).in;
      const auto operand = static_cast<size_t>(std::ranges::find(in, whole) - in.begin());
      all = {{first, also_writing(g_, std::move(all.at(first)), whole, operand)}};
    }
    for (const auto& [r, l] : all)
      if (!supports_(l.signature(g_))) return;
    for (auto& [r, l] : all) v_.replace(r, std::move(l));
    v_.elide(concat);
  }

  // ---- along other dims ------------------------------------------------------------------------

  // A value that an elementwise node only repeats along a dim, as that node reads it.
  LoopNode::Input repeated(int32_t v, int64_t dim) const {
    const Node* const n = producer(g_, v);
    Shape one = v_.shape(v);
    one[dim] = 1;
    if (n == nullptr || !ebb::is_elementwise(*n) || n->in.size() != 1 || one == v_.shape(v) ||
        g_.type(n->in[0]) != Type{g_.type(v).dtype, g_.type(n->in[0]).shape} ||
        g_.type(n->in[0]).shape.numel() != one.numel())
      return {v, v_.shape(v)};
    const Scalar x[] = {Scalar::input(0)};
    if (!(expression_of(g_, *n) == Expr(1, x))) return {v, v_.shape(v)};
    return {n->in[0], one};
  }
  std::optional<SegmentInputs> token_segments(size_t concat) const {
    const Node& n = v_.node(concat);
    for (int64_t d = 1; d + 1 < v_.shape(n.out[0]).rank(); ++d) {
      const std::vector<int32_t> parts = concatenated(g_, n, d);
      if (parts.empty()) continue;
      SegmentInputs s{.dim = d - v_.shape(n.out[0]).rank(), .widths = {}, .in = {}};
      bool all_repeat = true;
      for (const int32_t v : parts) {
        s.widths.push_back(v_.shape(v)[d]);
        s.in.push_back(repeated(v, d));
        all_repeat &= s.in.back().value != v;
      }
      for (size_t k = 0; k < parts.size() && !all_repeat; ++k)
        s.in[k] = {parts[k], v_.shape(parts[k])};
      return s;
    }
    return {};
  }
  // All readers of a concatenation of tokens read its segments.
  void read_tokens(size_t concat, const SegmentInputs& segments) {
    const int32_t whole = v_.node(concat).out[0];
    std::map<size_t, LoopNode> all;
    for (const size_t r : readers(whole)) {
      std::optional<LoopNode> l = v_.loop(r);
      if (!l || v_.is_kept(whole)) return;
      const ops::Segments& s = l->loop.segments;
      const bool fits = s.widths.empty() || (s.dim == segments.dim && s.widths == segments.widths);
      const bool as_is = std::ranges::all_of(l->in, [&](const LoopNode::Input& x) {
        return x.value != whole || x.shape == v_.shape(whole);
      });
      if (!fits || !as_is) return;
      l = reading_segments(std::move(*l), whole, segments);
      if (!supports_(l->signature(g_))) return;
      all.emplace(r, std::move(*l));
    }
    if (all.empty()) return;
    for (auto& [r, l] : all) v_.replace(r, std::move(l));
    v_.elide(concat);
  }

  ViewedGraph& v_;
  const Graph& g_;
  const Supports& supports_;
  std::map<int32_t, std::set<size_t>> readers_;  // nodes of the graph that read a value
};

// ---- columns -----------------------------------------------------------------------------------

// Concatenations of which nothing reads a segment, which may be renamed in between.
class ColumnWriter {
 public:
  ColumnWriter(ViewedGraph& v, const Supports& supports)
      : v_(v), g_(v.graph()), supports_(supports) {
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      for (const int32_t in : v.reads(i)) ++reads_[in];
  }
  void run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::vector<int32_t> segments = concatenated(g_, v_.node(i), -1);
      if (segments.empty() || v_.is_elided(i)) continue;
      std::vector<Producer> producers;
      renamings_.clear();
      for (const int32_t v : segments)
        if (const auto p = producer_of(v)) producers.push_back(*p);
      if (producers.size() < segments.size()) continue;
      if (write_concatenation(i, segments, producers) ||
          compute_concatenation(i, segments, producers))
        for (const size_t r : renamings_) v_.elide(r);
    }
  }

 private:
  struct Producer {
    size_t node = 0;
    LoopNode loop;
    size_t output = 0;  // of that loop
  };

  // None if a value on the way has another reader.
  std::optional<Producer> producer_of(int32_t v) {
    for (;;) {
      const auto at = v_.writer(v);
      if (!at || v_.is_kept(v) || reads_[v] != 1) return {};
      const auto [i, output] = *at;
      if (!keeps_rows(g_, v_.node(i))) {
        std::optional<LoopNode> l = v_.loop(i);
        if (!l) return {};
        return Producer{i, std::move(*l), output};
      }
      renamings_.push_back(i);
      v = v_.node(i).in[0];
    }
  }

  // By the one loop that produces all segments as results of one extent.
  bool write_concatenation(size_t concat, const std::vector<int32_t>& segments,
                           const std::vector<Producer>& producers) {
    const LoopNode& l = producers[0].loop;
    if (l.loop.concatenated != 0 || !l.loop.segments.segmented_out.empty()) return false;
    const ops::Extent extent = l.loop.results[producers[0].output].extent;
    if (extent != ops::Extent::channel && !worth_segments(g_, segments)) return false;
    std::vector<size_t> outputs;
    for (const Producer& p : producers) {
      if (p.node != producers[0].node || l.loop.results[p.output].extent != extent ||
          !(g_.type(l.out[p.output]) == g_.type(l.out[producers[0].output])))
        return false;
      outputs.push_back(p.output);
    }
    LoopNode made = writing_concatenation(l, outputs, v_.node(concat).out[0]);
    if (!supports_(made.signature(g_))) return false;
    v_.replace(producers[0].node, std::move(made));
    v_.elide(concat);
    return true;
  }

  // As the expression that all producers compute, of one tensor each.
  bool compute_concatenation(size_t concat, const std::vector<int32_t>& segments,
                             const std::vector<Producer>& producers) {
    const LoopNode& first = producers[0].loop;
    const int32_t whole = v_.node(concat).out[0];
    if (!worth_segments(g_, segments)) return false;
    LoopNode made{{.expr = first.loop.expr,
                   .shape = v_.shape(whole).sizes(),
                   .results = first.loop.results,
                   .segments = {.segmented_in = {0}}},
                  {},
                  {whole},
                  v_.node(concat).at};
    for (size_t k = 0; k < producers.size(); ++k) {
      const LoopNode& l = producers[k].loop;
      if (!is_elementwise(l) || !(l.loop.expr == first.loop.expr) ||
          g_.type(l.in[0].value).dtype != g_.type(first.in[0].value).dtype ||
          g_.type(l.out[0]).dtype != g_.type(first.out[0]).dtype)
        return false;
      made.in.push_back({l.in[0].value, v_.shape(segments[k])});
      made.loop.segments.widths.push_back(v_.shape(segments[k])[-1]);
    }
    if (!supports_(made.signature(g_))) return false;
    v_.replace(concat, std::move(made));
    for (const Producer& p : producers) v_.elide(p.node);
    return true;
  }
  // One tensor to one of its shape, without views.
  bool is_elementwise(const LoopNode& l) const {
    return kind_of(l.loop) == ops::LoopKind::map && l.in.size() == 1 && l.out.size() == 1 &&
           !l.is_viewed(0) && l.loop.segments.widths.empty() &&
           l.in[0].shape == v_.shape(l.out[0]) && l.in[0].shape.rank() > 0;
  }

  ViewedGraph& v_;
  const Graph& g_;
  const Supports& supports_;
  std::map<int32_t, int> reads_;   // by value
  std::vector<size_t> renamings_;  // of the concatenation at hand
};

}  // namespace

Graph elide_copies(const Graph& g, const Supports& supports) {
  ViewedGraph v(g);
  view_strided(v, supports);
  view_swaps(v, supports);
  SegmentFinder(v, supports).run();
  v.elide_unread();
  view_slices(v, supports);
  ColumnWriter(v, supports).run();
  return v.rebuilt();
}

}  // namespace ebb
