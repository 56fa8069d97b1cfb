#include "passes/concats.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/segments.h"

namespace ebb {
namespace {

// The producer of a segment of a concatenation.
struct Producer {
  size_t node = 0;
  size_t output = 0;  // of that node
};

class ConcatElider {
 public:
  ConcatElider(const Graph& g, const std::function<bool(const Signature&)>& supports)
      : g_(g), supports_(supports), reads_(static_cast<size_t>(g.values())) {
    for (const Node& n : g.nodes())
      for (const int32_t v : n.in) ++reads_[static_cast<size_t>(v)];
    for (const NamedValue& o : g.outputs()) ++reads_[static_cast<size_t>(o.value)];
    for (const NamedValue& u : g.updates()) ++reads_[static_cast<size_t>(u.value)];
  }

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) find(i);
    return writers_.empty() && expressions_.empty() ? g_ : rebuild();
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }

  // ---- which concatenations ---------------------------------------------------------------------

  void find(size_t i) {
    const Node& n = node(i);
    if (n.op != &ops::def::concat() || n.attrs.as<ops::Concat>().dim != shape(n.out[0]).rank() - 1)
      return;
    std::vector<Producer> producers;
    std::vector<size_t> reshapes;
    for (const int32_t v : n.in)
      if (const auto p = producer_of(v, reshapes)) producers.push_back(*p);
    if (producers.size() < n.in.size() || producers.size() < 2) return;
    if (may_write(producers)) {
      writers_[producers[0].node] = i;
    } else if (are_alike(producers) && supports_(expression(i, producers))) {
      expressions_.insert(i);
      for (const Producer& p : producers) gone_.insert(p.node);
    } else {
      return;
    }
    producers_[i] = producers;
    gone_.insert(i);
    gone_.insert(reshapes.begin(), reshapes.end());
  }

  // None if a value on the way has another reader.
  std::optional<Producer> producer_of(int32_t v, std::vector<size_t>& reshapes) const {
    for (;;) {
      if (g_.producer(v) < 0 || reads_[static_cast<size_t>(v)] != 1) return {};
      const auto producing = static_cast<size_t>(g_.producer(v));
      const Node& n = node(producing);
      if (n.op != &ops::def::reshape() || shape(n.in[0]).rank() == 0 ||
          shape(n.in[0])[-1] != shape(v)[-1]) {
        const auto out = std::ranges::find(n.out, v) - n.out.begin();
        return Producer{producing, static_cast<size_t>(out)};
      }
      reshapes.push_back(producing);
      v = n.in[0];
    }
  }

  // Whether one loop produces all segments as per-channel results: it may then write them
  // concatenated.
  bool may_write(const std::vector<Producer>& producers) const {
    const Node& n = node(producers[0].node);
    if (n.op != &ops::def::loop() || writers_.contains(producers[0].node)) return false;
    const auto& a = n.attrs.as<ops::Loop>();
    if (a.concatenated != 0 || !a.segments.segmented_out.empty()) return false;
    for (const Producer& p : producers)
      if (p.node != producers[0].node || a.results[p.output].extent != ops::Extent::channel ||
          type(p) != type(producers[0]))
        return false;
    return supports_(with_concat(n, producers));
  }
  const Type& type(const Producer& p) const { return g_.type(node(p.node).out[p.output]); }

  bool are_alike(const std::vector<Producer>& producers) const {
    const Node& first = node(producers[0].node);
    if (first.op != &ops::def::pointwise()) return false;
    std::vector<int64_t> widths;
    for (const Producer& p : producers) {
      const Node& n = node(p.node);
      if (n.op != first.op || n.in.size() != 1 || n.out.size() != 1) return false;
      if (shape(n.in[0]) != shape(n.out[0]) || shape(n.out[0]).rank() == 0 ||
          g_.type(n.in[0]).dtype != g_.type(first.in[0]).dtype ||
          g_.type(n.out[0]).dtype != g_.type(first.out[0]).dtype ||
          !(n.attrs.as<ops::Pointwise>().expr == first.attrs.as<ops::Pointwise>().expr))
        return false;
      widths.push_back(shape(n.out[0])[-1]);
    }
    return worth_segments(widths);
  }

  // ---- the new nodes ---------------------------------------------------------------------------

  // Concatenation `i` as a pointwise node over its segments.
  Signature expression(size_t i, const std::vector<Producer>& producers) const {
    const Node &n = node(i), &first = node(producers[0].node);
    ops::Segments p{.segmented_in = {0}};
    Signature s{&ops::def::loop(), {}, {}, {g_.type(n.out[0])}, n.at};
    for (size_t k = 0; k < producers.size(); ++k) {
      s.in.push_back({g_.type(node(producers[k].node).in[0]).dtype, shape(n.in[k])});
      p.widths.push_back(shape(n.in[k])[-1]);
    }
    s.attrs = ops::Loop{.expr = first.attrs.as<ops::Pointwise>().expr,
                        .shape = s.out[0].shape.sizes(),
                        .results = {{s.out[0].dtype}},
                        .segments = p};
    return s;
  }

  // The outputs of a loop in their new order: the concatenated ones come last.
  static std::vector<size_t> order(const Node& n, const std::vector<Producer>& producers) {
    std::vector<size_t> all(n.out.size());
    std::iota(all.begin(), all.end(), size_t{0});
    for (const Producer& p : producers) {
      std::erase(all, p.output);
      all.push_back(p.output);
    }
    return all;
  }
  Signature with_concat(const Node& n, const std::vector<Producer>& producers) const {
    Signature s = g_.signature(n);
    ops::Loop a = s.as<ops::Loop>();
    const size_t reductions = a.reductions.size();
    std::vector<Scalar> x;
    for (int64_t k = 0; k < a.expr.inputs(); ++k) x.push_back(Scalar::input(k));
    const std::vector<Scalar> before = a.expr.apply(x);
    std::vector<Scalar> results(before.begin(), before.begin() + static_cast<int64_t>(reductions));
    ListOf<ops::LoopResult> ordered;
    for (const size_t k : order(n, producers)) {
      results.push_back(before[reductions + k]);
      ordered.push_back(a.results[k]);
    }
    a.expr = Expr(a.expr.inputs(), results);
    a.results = ordered;
    a.concatenated = static_cast<int64_t>(producers.size());
    s.attrs = a;
    s.out = s.op->infer(s);
    return s;
  }

  void place_writer(size_t i, Rewriter& rw) const {
    const size_t concat = writers_.at(i);
    const std::vector<Producer>& producers = producers_.at(concat);
    const Signature s = with_concat(node(i), producers);
    const AtScope scope(rw.to(), node(i).at);
    const auto out = rw.to().add(*s.op, s.attrs, rw.map(node(i).in));
    const std::vector<size_t> all = order(node(i), producers);
    for (size_t k = 0; k + 1 < out.size(); ++k) rw.set(node(i).out[all[k]], out[k]);
    const int32_t concatenated = node(concat).out[0];
    rw.set(concatenated, ops::reshape(out.back(), shape(concatenated)));
  }
  void place_expression(size_t i, Rewriter& rw) const {
    const std::vector<Producer>& producers = producers_.at(i);
    const Signature s = expression(i, producers);
    const AtScope scope(rw.to(), node(i).at);
    std::vector<Value> in;
    for (size_t k = 0; k < producers.size(); ++k)
      in.push_back(ops::reshape(rw.map(node(producers[k].node).in[0]), s.in[k].shape));
    rw.set(node(i).out[0], rw.to().add(*s.op, s.attrs, in)[0]);
  }

  Graph rebuild() const {
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (writers_.contains(i))
        place_writer(i, rw);
      else if (expressions_.contains(i))
        place_expression(i, rw);
      else if (!gone_.contains(i))
        rw.copy(node(i));
    }
    rw.copy_ends();
    return rw.take();
  }

  const Graph& g_;
  const std::function<bool(const Signature&)>& supports_;
  std::vector<int> reads_;            // by value
  std::map<size_t, size_t> writers_;  // by node: the concatenation that this loop writes
  std::map<size_t, std::vector<Producer>> producers_;  // by concatenation
  std::set<size_t> expressions_, gone_;  // concatenations that become pointwise nodes; elided nodes
};

}  // namespace

Graph elide_concats(const Graph& g, const std::function<bool(const Signature&)>& supports) {
  return ConcatElider(g, supports).run();
}

}  // namespace ebb
