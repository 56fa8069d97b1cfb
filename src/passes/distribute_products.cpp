#include "passes/distribute_products.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ir/contraction.h"
#include "ops/add/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pad/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/copies.h"
#include "passes/expression_node.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

// weight + outer inner: [N,K], [N,r], [r,K].
struct LowRankSum {
  int32_t weight = -1, outer = -1, inner = -1;
};

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
    const Node* const sum = producer(g_, root_of(g_, v));
    if (!sum || !is_sum_of_two(*sum)) return {};
    for (size_t k = 0; k < 2; ++k) {
      const int32_t weight = sum->in[1 - k];
      const Node* const product = producer(g_, root_of(g_, sum->in[k]));
      if (!product || trained(weight) || !is_matrix_product(*product)) continue;
      const Shape &outer = g_.type(product->in[0]).shape, &inner = g_.type(product->in[1]).shape;
      const int64_t rank = inner[0];
      if (outer != Shape{shape[0], rank} || inner != Shape{rank, shape[1]}) continue;
      if (rank * (shape[0] + shape[1]) < shape.numel())
        return LowRankSum{weight, product->in[0], product->in[1]};
    }
    return {};
  }

  bool is_sum_of_two(const Node& n) const {
    return n.op->expr && n.in.size() == 2 && ops::is_sum(expression_of(g_, n)) &&
           std::ranges::all_of(n.in, [&](int32_t v) {
             return g_.type(v).shape.numel() == g_.type(n.out[0]).shape.numel();
           });
  }
  bool is_matrix_product(const Node& n) const {
    if (!n.op->contraction || n.in.size() != 2) return false;
    const Contraction c = n.op->contraction(g_.signature(n));
    return c.by_columns && c.products == 1 && c.epilogue.is_sum() &&
           g_.type(n.in[0]).shape.rank() == 2;
  }

  void distribute(Rewriter& rw, const Node& n, const std::vector<LowRankSum>& parts) const {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> weights, inner, outer;
    int64_t ranks = 0;
    for (const LowRankSum& p : parts) ranks += g_.type(p.inner).shape[0];
    int64_t before = 0;
    for (const LowRankSum& p : parts) {
      const int64_t rank = g_.type(p.inner).shape[0], after = ranks - before - rank;
      const Shape shape{g_.type(p.outer).shape[0], g_.type(p.inner).shape[1]};
      weights.push_back(ops::reshape(rw.map(p.weight), shape));
      inner.push_back(rw.map(p.inner));
      // on the diagonal: each part's rows read its own products alone
      outer.push_back(ops::pad(rw.map(p.outer), {.before = {0, before}, .after = {0, after}}));
      before += rank;
    }
    const auto below = [](const std::vector<Value>& v) {
      return v.size() == 1 ? v[0] : ops::concat(v, 0);
    };
    std::vector<Value> in = rw.map(n.in);
    in[1] = below(weights);
    const Value whole = rw.to().add(*n.op, n.attrs, in)[0];
    rw.set(n.out[0], whole + ops::linear(ops::linear(in[0], below(inner)), below(outer)));
  }

  const Graph& g_;
  std::vector<bool> trained_;  // by value: a param, or made of one
};

}  // namespace

Graph distribute_products(const Graph& g) {
  Graph out = Distributor(g).run();
  verify(out, "distribute_products");
  return out;
}

}  // namespace ebb
