#include "passes/contractions/merge_matmuls.h"

#include <map>
#include <tuple>

#include "ir/contraction.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/slice/op.h"
#include "passes/schedule/prepare.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

class MatmulMerger {
 public:
  MatmulMerger(const Graph& g, const std::function<bool(const Source&)>& is_weight)
      : g_(g),
        from_weights_(values_from_weights(g, is_weight)),
        readers_(from_weights_.size()),
        copied_(g.nodes().size()),
        rw_(g) {
    for (const Node& n : g.nodes())
      if (!from_weights_[static_cast<size_t>(n.out[0])])
        for (const int32_t v : n.in) ++readers_[static_cast<size_t>(root_of(g, v))];
    for (const NamedValue& o : g.outputs()) ++readers_[static_cast<size_t>(root_of(g, o.value))];
    for (size_t i = 0; i < g.nodes().size(); ++i)
      if (const Node& n = g.nodes()[i]; mergeable(n)) groups_[key_of(n)].push_back(i);
    std::erase_if(groups_, [](const auto& group) { return group.second.size() < 2; });
  }

  Graph run() {
    if (groups_.empty()) return g_;
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (!copied_[i]) rebuild(i);
    rw_.copy_ends();
    return rw_.take();
  }

 private:
  // The activation, whether there is a bias, and the dtypes of weights, bias and result.
  using Key = std::tuple<int32_t, size_t, DType, DType, DType>;

  bool mergeable(const Node& n) const {
    if (!n.op->contraction || n.in.size() > 3 || n.out.size() != 1) return false;
    const Contraction c = n.op->contraction(g_.signature(n));
    if (!c.linear || c.products != 1) return false;
    for (size_t k = 1; k < n.in.size(); ++k)
      if (!from_weights_[static_cast<size_t>(n.in[k])]) return false;
    // What another node reads would be held twice.
    if (readers_[static_cast<size_t>(root_of(g_, n.in[1]))] > 1) return false;
    if (n.in.size() == 3 && g_.type(n.in[2]).shape.rank() != 1) return false;  // a residual
    return g_.type(n.in[0]).shape.rank() == 2 && !from_weights_[static_cast<size_t>(n.in[0])];
  }

  Key key_of(const Node& n) const {
    const bool bias = n.in.size() == 3;
    return {n.in[0], n.in.size(), g_.type(n.in[1]).dtype, g_.type(n.in[bias ? 2 : 1]).dtype,
            g_.type(n.out[0]).dtype};
  }

  // A merged matmul replaces the first of its group.
  void rebuild(size_t i) {
    const Node& n = g_.nodes()[i];
    if (mergeable(n) && groups_.contains(key_of(n))) {
      if (!columns_.contains(n.out[0])) merge(groups_.at(key_of(n)));
      return;
    }
    bool all = true;  // its results are slices of merged matmuls; the node disappears
    for (const int32_t v : n.out) {
      const auto view = columns_of(g_, v);
      const auto found = view ? columns_.find(view->base) : columns_.end();
      all = all && found != columns_.end();
      if (all) rw_.set(v, slice(found->second, view->begin, view->end, n));
    }
    if (!all) rw_.copy(n);
    copied_[i] = true;
  }

  // Weights that are computed later than the merged matmul reads them.
  void copy_early(int32_t v) {
    if (g_.producer(v) < 0) return;
    const auto i = static_cast<size_t>(g_.producer(v));
    if (copied_[i]) return;
    for (const int32_t in : g_.nodes()[i].in) copy_early(in);
    rw_.copy(g_.nodes()[i]);
    copied_[i] = true;
  }

  void merge(const std::vector<size_t>& group) {
    const Node& first = g_.nodes()[group[0]];
    const AtScope scope(rw_.to(), first.at);
    std::vector<Value> in = {rw_.map(first.in[0])};
    for (size_t k = 1; k < first.in.size(); ++k) {
      std::vector<Value> parts;
      for (const size_t i : group) {
        copy_early(g_.nodes()[i].in[k]);
        parts.push_back(rw_.map(g_.nodes()[i].in[k]));
      }
      in.push_back(ops::concat(parts, 0));
    }
    const Value merged = rw_.to().add(*first.op, first.attrs, in)[0];
    int64_t begin = 0;
    for (const size_t i : group) {
      const Node& n = g_.nodes()[i];
      columns_[n.out[0]] = {merged, begin};
      const int64_t width = g_.type(n.out[0]).shape[-1];
      rw_.set(n.out[0], slice(columns_.at(n.out[0]), 0, width, n));
      begin += width;
    }
  }

  struct Columns {
    Value merged;
    int64_t begin = 0;
  };
  Value slice(const Columns& c, int64_t begin, int64_t end, const Node& at) {
    const AtScope scope(rw_.to(), at.at);
    return ops::slice(c.merged, -1, c.begin + begin, c.begin + end);
  }

  const Graph& g_;
  std::vector<bool> from_weights_;  // by value
  std::vector<int> readers_;        // by value: nodes that do not depend on weights alone
  std::vector<bool> copied_;        // by node
  Rewriter rw_;
  std::map<Key, std::vector<size_t>> groups_;  // of nodes
  std::map<int32_t, Columns> columns_;         // by value of g_: its position in a merged matmul
};

}  // namespace

Graph merge_matmuls(const Graph& g, const std::function<bool(const Source&)>& is_weight) {
  return dead_code(MatmulMerger(g, is_weight).run());
}

}  // namespace ebb
