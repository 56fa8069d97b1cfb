#include "passes/contractions/distribute_products.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/contraction.h"
#include "ops/add/op.h"
#include "ops/modulate/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pad/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/expression_node.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

// weight + outer inner: [N,K], [N,r], [r,K]; perhaps times a scale [N,1] of each row.
struct LowRankSum {
  int32_t weight = -1;
  LowRankProduct change;
  int32_t scale = -1;
};

bool is_matrix_product(const Graph& g, const Node& n) {
  if (!n.op->contraction || n.in.size() != 2) return false;
  const Contraction c = n.op->contraction(g.signature(n));
  return c.by_columns && c.products == 1 && c.epilogue.is_sum() &&
         g.type(n.in[0]).shape.rank() == 2;
}

class Distributor {
 public:
  explicit Distributor(const Graph& g) : g_(g), trained_(static_cast<size_t>(g.values())) {
    for (const Source& s : g.sources()) trained(s.value) = s.kind == Source::Kind::param;
    for (const Node& n : g.nodes())
      if (std::ranges::any_of(n.in, [&](int32_t v) { return trained(v); }))
        for (const int32_t v : n.out) trained(v) = true;
  }

  Graph run() {
    Rewriter rw(g_);
    rw.copy_sources();
    for (const Node& n : g_.nodes()) {
      const std::vector<LowRankSum> parts = sums_read_by(n);
      if (parts.empty())
        rw.copy(n);
      else
        distribute(rw, n, parts);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  std::vector<bool>::reference trained(int32_t v) { return trained_[static_cast<size_t>(v)]; }

  // What lies below each other in the weights of a contraction; none unless all are such sums.
  std::vector<LowRankSum> sums_read_by(const Node& n) {
    if (!n.op->contraction || n.out.size() != 1) return {};
    const Contraction c = n.op->contraction(g_.signature(n));
    if (!c.linear || c.products != 1 || !c.epilogue.is_sum()) return {};
    const Node* made = producer(g_, n.in[1]);
    std::vector<int32_t> rows = made ? concatenated(g_, *made, 0) : std::vector<int32_t>{};
    if (rows.empty()) rows = {n.in[1]};
    std::vector<LowRankSum> out;
    for (const int32_t v : rows) {
      const std::optional<LowRankSum> sum = low_rank_sum(v);
      if (!sum) return {};
      out.push_back(*sum);
    }
    return out;
  }

  std::optional<LowRankSum> low_rank_sum(int32_t v) {
    const Shape& shape = g_.type(v).shape;
    const Node* made = producer(g_, root_of(g_, v));
    int32_t scale = -1;
    if (made && is_product_by_rows(*made)) {
      scale = made->in[1];
      made = producer(g_, root_of(g_, made->in[0]));
    }
    if (!made || !is_sum_of_two(*made)) return {};
    for (size_t k = 0; k < 2; ++k) {
      const int32_t weight = made->in[1 - k];
      if (trained(weight)) continue;
      if (const auto change = low_rank_product(g_, made->in[k], shape))
        return LowRankSum{weight, *change, scale};
    }
    return {};
  }

  // A matrix [N,K] times a column [N,1].
  bool is_product_by_rows(const Node& n) const {
    if (!n.op->expr || n.in.size() != 2 || !ops::is_product(expression_of(g_, n))) return false;
    const Shape &whole = g_.type(n.in[0]).shape, &rows = g_.type(n.in[1]).shape;
    return whole.rank() == 2 && whole == g_.type(n.out[0]).shape && rows == Shape{whole[0], 1};
  }

  bool is_sum_of_two(const Node& n) const {
    return n.op->expr && n.in.size() == 2 && ops::is_sum(expression_of(g_, n)) &&
           std::ranges::all_of(n.in, [&](int32_t v) {
             return g_.type(v).shape.numel() == g_.type(n.out[0]).shape.numel();
           });
  }
  void distribute(Rewriter& rw, const Node& n, const std::vector<LowRankSum>& parts) const {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> weights, inner, outer;
    int64_t ranks = 0;
    for (const LowRankSum& p : parts) ranks += rank_of(p);
    int64_t before = 0;
    for (const LowRankSum& p : parts) {
      const int64_t rank = rank_of(p), after = ranks - before - rank;
      const Shape shape{g_.type(p.change.outer).shape[0], g_.type(p.change.inner).shape[1]};
      weights.push_back(ops::reshape(rw.map(p.weight), shape));
      inner.push_back(rw.map(p.change.inner));
      // on the diagonal: each part's rows read its own products alone
      outer.push_back(
          ops::pad(rw.map(p.change.outer), {.before = {0, before}, .after = {0, after}}));
      before += rank;
    }
    std::vector<Value> in = rw.map(n.in);
    in[1] = below(weights);
    const Value change = ops::linear(ops::linear(in[0], below(inner)), below(outer));
    const bool scaled = std::ranges::any_of(parts, [](const auto& p) { return p.scale >= 0; });
    const auto sum_of = [&](std::span<const Value> operands) {
      return rw.to().add(*n.op, n.attrs, operands)[0] + change;
    };
    rw.set(n.out[0], scaled ? scaled_rows(sum_of(std::span(in).first(2)), scales(rw, parts),
                                          std::span(in).subspan(2))
                            : sum_of(in));
  }

  int64_t rank_of(const LowRankSum& p) const { return g_.type(p.change.inner).shape[0]; }
  static Value below(const std::vector<Value>& v) {
    return v.size() == 1 ? v[0] : ops::concat(v, 0);
  }

  // [N], ones where a part has none.
  Value scales(Rewriter& rw, const std::vector<LowRankSum>& parts) const {
    std::vector<Value> out;
    for (const LowRankSum& p : parts) {
      const int64_t rows = g_.type(p.change.outer).shape[0];
      out.push_back(p.scale < 0 ? ops::constant(rw.to(), 1, {rows})
                                : ops::reshape(rw.map(p.scale), {rows}));
    }
    return below(out);
  }

  // y times a scale of each column, then the operands of the sum that y was. As 1 + (scale - 1):
  // scales near 1 keep their digits where the work beside products is done in 16 bits, too.
  static Value scaled_rows(Value y, Value scale, std::span<const Value> operands) {
    const int64_t width = scale.shape()[0];
    const Shape shape = y.shape(), rows{1, width};
    Value shift = ops::constant(*y.graph, 0, rows);
    Value residual;
    for (const Value& v : operands) (v.shape().rank() == 1 ? shift : residual) = v;
    const Value more = ops::map({scale}, [](auto x) { return x[0] - 1.0; });
    Value out = ops::modulate(ops::reshape(y, {1, shape.numel() / width, width}),
                              ops::reshape(shift, rows), ops::reshape(more, rows));
    out = ops::reshape(out, shape);
    return residual ? out + residual : out;
  }

  const Graph& g_;
  std::vector<bool> trained_;  // by value: a param, or made of one
};

}  // namespace

std::optional<LowRankProduct> low_rank_product(const Graph& g, int32_t v, const Shape& shape) {
  const Node* const product = producer(g, root_of(g, v));
  if (shape.rank() != 2 || !product || !is_matrix_product(g, *product)) return {};
  const LowRankProduct out{product->in[0], product->in[1]};
  const Shape &outer = g.type(out.outer).shape, &inner = g.type(out.inner).shape;
  const int64_t rank = inner[0];
  if (outer != Shape{shape[0], rank} || inner != Shape{rank, shape[1]}) return {};
  if (rank * (shape[0] + shape[1]) >= shape.numel()) return {};
  return out;
}

Graph distribute_products(const Graph& g) {
  Graph out = Distributor(g).run();
  verify(out, "distribute_products");
  return out;
}

}  // namespace ebb
