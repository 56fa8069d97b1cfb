// hoist_concats: see hoist_views.h.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"
#include "ops/prim/swaps.h"
#include "passes/expression_node.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"
#include "passes/views/hoist_views.h"
#include "passes/views/operand_views.h"

namespace ebb {
namespace {

// Values side by side along a dim, counted from the last, -1, on.
struct Parts {
  std::vector<int32_t> values;
  int64_t dim = -1;
  bool operator<(const Parts& o) const { return std::tie(dim, values) < std::tie(o.dim, o.values); }
};

class Joiner {
 public:
  explicit Joiner(const Graph& g) : g_(g), rw_(g), readers_(static_cast<size_t>(g.values())) {
    for (size_t i = 0; i < g.nodes().size(); ++i) {
      expressions_.push_back(expression_node_of(g, g.nodes()[i]));
      for (const int32_t v : g.nodes()[i].in) readers_[static_cast<size_t>(v)].push_back(i);
    }
    for (const auto* ends : {&g.outputs(), &g.updates()})
      for (const NamedValue& e : *ends) kept_.insert(e.value);
  }

  Graph run() {
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      const std::optional<Parts> parts = concatenation(n);
      if (!parts || !reduces_rows(*parts)) {
        rw_.copy(n);
        continue;
      }
      any_ = true;
      const AtScope scope(rw_.to(), n.at);
      rw_.set(n.out[0], join(*parts));
    }
    if (!any_) return g_;
    rw_.copy_ends();
    return dead_code(rw_.take());
  }

 private:
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }
  size_t producer(int32_t v) const { return static_cast<size_t>(g_.producer(v)); }
  // The size of a value along the dim of the parts; 1 where it is broadcast.
  int64_t size(int32_t v, int64_t dim) const { return -dim > shape(v).rank() ? 1 : shape(v)[dim]; }

  // Of tokens or the like: not along the last dim, which segments and columns are for.
  std::optional<Parts> concatenation(const Node& n) const {
    if (n.op->copy == nullptr || n.out.size() != 1) return {};
    for (int64_t d = 1; d + 1 < shape(n.out[0]).rank(); ++d)
      if (auto all = concatenated(g_, n, d); !all.empty())
        return Parts{std::move(all), d - shape(n.out[0]).rank()};
    return {};
  }

  // Whether all parts are results of one expression each, the same, and only such work reads them.
  bool is_work(const Parts& p) const {
    for (const int32_t v : p.values) {
      if (g_.producer(v) < 0 || !expressions_[producer(v)]) return false;
      const ExpressionNode &e = *expressions_[producer(v)],
                           &first = *expressions_[producer(p.values[0])];
      if (e.out.size() != 1 || !(e.expr == first.expr) || e.reduction != first.reduction ||
          e.dtypes != first.dtypes || e.in.size() != first.in.size() || !reads_alike(e, first, p))
        return false;
      if (kept_.contains(v) ||
          !std::ranges::all_of(readers_[static_cast<size_t>(v)], [&](size_t r) {
            return expressions_[r] || g_.nodes()[r].op->copy || g_.nodes()[r].op->renames;
          }))
        return false;
    }
    return true;
  }
  // Whether the spaces are the same but for the sizes along the dim, which is not reduced, and so
  // are the operands, of the same dtypes.
  bool reads_alike(const ExpressionNode& e, const ExpressionNode& first, const Parts& p) const {
    Shape a = e.space, b = first.space;
    if (a.rank() != b.rank() || -p.dim > a.rank()) return false;
    const int64_t dim = a.rank() + p.dim;
    if (e.reduction && std::ranges::count(e.reduction->dims, dim) != 0) return false;
    a[dim] = b[dim] = 1;
    if (a != b || e.space[dim] != size(e.out[0], p.dim)) return false;
    for (size_t k = 0; k < e.in.size(); ++k)
      if (g_.type(e.in[k]).dtype != g_.type(first.in[k]).dtype ||
          shape_beside(e.in[k], p.dim) != shape_beside(first.in[k], p.dim))
        return false;
    return true;
  }
  // The shape of a value with size 1 along the dim.
  Shape shape_beside(int32_t v, int64_t dim) const {
    Shape s = shape(v);
    if (-dim <= s.rank()) s[dim] = 1;
    return s;
  }

  // Whether they are such work with a reduction in it: a loop of its own in any case.
  bool reduces_rows(const Parts& p) const {
    if (!is_work(p)) return false;
    const ExpressionNode& first = *expressions_[producer(p.values[0])];
    if (first.reduction) return true;
    for (size_t k = 0; k < first.in.size(); ++k) {
      Parts operands{{}, p.dim};
      for (const int32_t v : p.values) operands.values.push_back(expressions_[producer(v)]->in[k]);
      if (reduces_rows(operands)) return true;
    }
    return false;
  }

  // The parts as one value.
  Value join(const Parts& p) {
    Value& known = known_[p];
    if (!known) {
      const Value v = joined(p);
      known_[p] = v;  // the map may have grown
      return v;
    }
    return known;
  }
  Value joined(const Parts& p) {
    if (const std::optional<int32_t> whole = whole_of(p)) return rw_.map(*whole);
    if (const auto swapped = swap(p)) return *swapped;
    if (is_work(p)) return work(p);
    std::vector<Value> all;
    for (const int32_t v : p.values) all.push_back(rw_.map(v));
    return ops::concat(all, p.dim);
  }

  // The value of which the parts are the ranges.
  std::optional<int32_t> whole_of(const Parts& p) const {
    int64_t end = 0;
    std::optional<int32_t> base;
    for (const int32_t v : p.values) {
      const std::optional<SliceView> s = slice_of(g_, v);
      if (!s || s->dim != shape(s->base).rank() + p.dim || s->begin != end ||
          (base && *base != s->base))
        return {};
      base = s->base;
      end = s->end;
    }
    return end == shape(*base)[p.dim] ? base : std::nullopt;
  }

  // The swap of the joined values.
  std::optional<Value> swap(const Parts& p) {
    Parts bases{{}, p.dim};
    int64_t run = 0;
    for (const int32_t v : p.values) {
      const std::optional<SwapView> s = swap_of(g_, v);
      if (!s || (run != 0 && s->run != run) || shape(s->base) != shape(v)) return {};
      run = s->run;
      bases.values.push_back(s->base);
    }
    return ops::swap_runs(join(bases), run);
  }

  Value work(const Parts& p) {
    std::vector<const ExpressionNode*> each;
    for (const int32_t v : p.values) each.push_back(&*expressions_[producer(v)]);
    std::vector<Value> in;
    for (size_t k = 0; k < each[0]->in.size(); ++k) {
      Parts operands{{}, p.dim};
      for (const ExpressionNode* e : each) operands.values.push_back(e->in[k]);
      in.push_back(operand(operands, each));
    }
    ExpressionNode e = *each[0];
    const int64_t dim = e.space.rank() + p.dim;
    for (size_t k = 1; k < each.size(); ++k) e.space[dim] += each[k]->space[dim];
    const Node made = e.node();
    const Value y = rw_.to().add(*made.op, made.attrs, in)[0];
    int64_t begin = 0;
    for (const int32_t v : p.values) {
      rw_.set(v, ops::slice(y, p.dim, begin, begin + size(v, p.dim)));
      begin += size(v, p.dim);
    }
    return y;
  }
  // One that all share, or of each its own.
  Value operand(const Parts& p, const std::vector<const ExpressionNode*>& each) {
    const bool same =
        std::ranges::count(p.values, p.values[0]) == static_cast<int64_t>(p.values.size());
    bool full = true;
    for (size_t k = 0; k < each.size(); ++k)
      full &= -p.dim <= shape(p.values[k]).rank() &&
              size(p.values[k], p.dim) == each[k]->space[each[k]->space.rank() + p.dim];
    if (full) return join(p);
    if (same) return rw_.map(p.values[0]);
    std::vector<Value> all;
    for (size_t k = 0; k < each.size(); ++k) {
      Shape s = each[k]->space;
      const Shape& own = shape(p.values[k]);
      for (int64_t d = -1; - d <= s.rank(); --d)
        if (d != p.dim) s[d] = -d > own.rank() ? 1 : own[d];
      all.push_back(ops::broadcast_to(rw_.map(p.values[k]), s));
    }
    return ops::concat(all, p.dim);
  }

  const Graph& g_;
  Rewriter rw_;
  std::vector<std::optional<ExpressionNode>> expressions_;  // by node
  std::vector<std::vector<size_t>> readers_;                // nodes, by value
  std::set<int32_t> kept_;                                  // outputs and updates
  std::map<Parts, Value> known_;
  bool any_ = false;
};

}  // namespace

Graph hoist_concats(const Graph& g) { return Joiner(g).run(); }

}  // namespace ebb
