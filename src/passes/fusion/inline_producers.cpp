#include "passes/fusion/inline_producers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/expr_inputs.h"
#include "passes/expression_node.h"
#include "passes/fusion/node_groups.h"
#include "passes/made_node.h"

namespace ebb {
namespace {

constexpr size_t max_inputs = 24;
constexpr size_t max_instructions = 160;

// A node: an expression that may change, or a node that stays as it is.
struct Item : ExpressionNode {
  const Node* other = nullptr;  // of any other op
  bool live = true;

  bool fusable() const { return other == nullptr; }
};

class Inliner {
 public:
  Inliner(const Graph& g, const InlineCosts& costs) : g_(g), costs_(costs) {
    for (const Node& n : g.nodes()) items_.push_back(make_item(n));
    for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
    for (const NamedValue& u : g.updates()) kept_.insert(u.value);
  }

  Graph run() {
    collect_readers();
    for (size_t i = 0; i < items_.size(); ++i) try_inline(i);
    for (size_t i = 0; i < items_.size() && costs_.hoists_row_scalars; ++i) try_spread(i);
    return rebuild();
  }

 private:
  Item make_item(const Node& n) const {
    std::optional<ExpressionNode> e = expression_node_of(g_, n);
    if (!e) return {{.in = n.in, .out = n.out}, &n};
    Item item{std::move(*e)};
    fold_constants(item);
    return item;
  }

  // Folds constant inputs into the expression.
  void fold_constants(Item& item) const {
    std::vector<Scalar> x;
    std::vector<int32_t> in;
    for (const int32_t v : item.in) {
      const std::optional<Scalar> constant = constant_of(v);
      x.push_back(constant.value_or(Scalar::input(static_cast<int64_t>(in.size()))));
      if (!constant) in.push_back(v);
    }
    if (in.empty() || in.size() == x.size()) return;
    item.expr = Expr(static_cast<int64_t>(in.size()), item.expr.apply(x));
    item.in = in;
  }

  std::optional<Scalar> constant_of(int32_t v) const {
    const int32_t p = g_.producer(v);
    if (p < 0 || g_.type(v).dtype != DType::f32) return {};
    const Node& n = g_.nodes()[static_cast<size_t>(p)];
    if (n.op->renames) return constant_of(n.in[0]);
    if (!is_elementwise(n) || !n.in.empty()) return {};
    const Scalar s = expression_of(g_, n).apply(
        {})[static_cast<size_t>(std::find(n.out.begin(), n.out.end(), v) - n.out.begin())];
    return s.is_constant() ? std::optional(s) : std::nullopt;
  }

  void collect_readers() {
    for (size_t i = 0; i < items_.size(); ++i)
      for (const int32_t v : items_[i].in) readers_[v].insert(i);
  }

  size_t count_full(const std::vector<int32_t>& in, const Shape& shape) const {
    std::set<int32_t> full;
    for (const int32_t v : in)
      if (g_.type(v).shape == shape) full.insert(v);
    return full.size();
  }

  // The readers of an item's results if it may be inlined into all of them; else none.
  std::vector<size_t> inline_targets(const Item& p, bool spread) const {
    std::set<size_t> all;
    for (const int32_t v : p.out) {
      if (kept_.contains(v) || !is_float(g_.type(v).dtype)) return {};
      if (const auto it = readers_.find(v); it != readers_.end())
        all.insert(it->second.begin(), it->second.end());
    }
    for (const size_t r : all) {
      const Item& c = items_[r];
      if (!c.fusable() || !(spread ? reads_rows(c, p.space) : c.space == p.space)) return {};
      if (c.expr.code().size() + p.expr.code().size() > max_instructions) return {};
      if (merged_inputs(p, c).size() > max_inputs) return {};
    }
    return {all.begin(), all.end()};
  }

  std::vector<int32_t> merged_inputs(const Item& p, const Item& c) const {
    std::vector<int32_t> in;
    const auto add = [&](int32_t v) {
      if (std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
    };
    for (const int32_t v : c.in)
      if (std::find(p.out.begin(), p.out.end(), v) == p.out.end()) add(v);
    for (const int32_t v : p.in) add(v);
    return in;
  }

  // Compares the full-size tensors read and written before and after inlining `p` into `targets`.
  // `still_read`: its inputs are read in any case, for other results.
  bool pays(const Item& p, const std::vector<size_t>& targets, bool still_read = false) const {
    size_t before = p.out.size(), after = 0;
    if (!still_read) before += count_full(p.in, p.space);
    for (const size_t t : targets) {
      before += count_full(items_[t].in, p.space);
      after += count_full(merged_inputs(p, items_[t]), p.space);
    }
    if (targets.size() == 1) return after <= before;
    const double again = p.expr.flops() * static_cast<double>(targets.size() - 1);
    return after < before &&
           again <= costs_.flops_per_pass * static_cast<double>(before - after + 1);
  }

  void try_inline(size_t index) {
    Item& p = items_[index];
    if (!p.fusable() || p.reduction || !p.live) return;
    const std::vector<size_t> targets = inline_targets(p, false);
    if (!targets.empty() && pays(p, targets)) return inline_everywhere(index, targets);
    for (size_t k = 0; k < p.out.size() && p.out.size() > 1; ++k)
      if (try_inline_result(index, k)) return try_inline(index);
  }

  // An item with these of its results alone.
  static Item with_results(const Item& p, const std::vector<size_t>& which) {
    Item some = p;
    const std::vector<Scalar> all = p.expr.apply(inputs_as_scalars(p.expr));
    std::vector<Scalar> results;
    some.out.clear();
    some.dtypes.clear();
    for (const size_t k : which) {
      results.push_back(all[k]);
      some.out.push_back(p.out[k]);
      some.dtypes.push_back(p.dtypes[k]);
    }
    some.expr = Expr(p.expr.inputs(), results);
    some.drop_unused_operands();
    return some;
  }

  // Inlines one result of an item, whose others stay.
  bool try_inline_result(size_t index, size_t k) {
    Item& p = items_[index];
    const Item one = with_results(p, {k});
    const std::vector<size_t> targets = inline_targets(one, false);
    if (targets.empty() || !pays(one, targets, true)) return false;
    std::vector<size_t> others;
    for (size_t other = 0; other < p.out.size(); ++other)
      if (other != k) others.push_back(other);
    for (const int32_t v : p.in) readers_[v].erase(index);
    p = with_results(p, others);
    for (const int32_t v : p.in) readers_[v].insert(index);
    inline_into_all(one, targets);
    return true;
  }

  // Inlines a per-row scalar into the nodes that iterate over the rows.
  void try_spread(size_t index) {
    const Item& p = items_[index];
    if (!p.fusable() || p.reduction || !p.live) return;
    const std::vector<size_t> targets = inline_targets(p, true);
    if (!targets.empty()) inline_everywhere(index, targets);
  }

  // Whether the item iterates along rows with one value of shape `rows` per row. A reduction over
  // other dims iterates across rows and would recompute the scalar for every element.
  static bool reads_rows(const Item& c, const Shape& rows) {
    constexpr int64_t shortest = 64;
    const int64_t last = c.space.rank() - 1;
    if (last < 0 || rows.rank() != c.space.rank() || rows[last] != 1 || c.space[last] < shortest)
      return false;
    if (c.reduction && std::ranges::find(c.reduction->dims, last) == c.reduction->dims.end())
      return false;
    return broadcastable(rows, c.space);
  }

  void inline_everywhere(size_t index, const std::vector<size_t>& targets) {
    Item& p = items_[index];
    for (const int32_t v : p.in) readers_[v].erase(index);
    inline_into_all(p, targets);
    p.live = false;
  }

  // The targets read what `p` read.
  void inline_into_all(const Item& p, const std::vector<size_t>& targets) {
    for (const size_t t : targets) inline_into(p, items_[t]);
    for (const int32_t v : p.in) readers_[v].insert(targets.begin(), targets.end());
    for (const int32_t v : p.out) readers_.erase(v);
  }

  void inline_into(const Item& p, Item& c) const {
    const std::vector<int32_t> in = merged_inputs(p, c);
    GroupExpressions f(in);
    const std::vector<Scalar> made = p.expr.apply(f.of(p.in));
    for (size_t k = 0; k < made.size(); ++k) f.value.emplace(p.out[k], made[k]);
    c.expr = Expr(f.inputs, c.expr.apply(f.of(c.in)));
    c.in = in;
  }

  // ---- the new graph

  Graph rebuild() {
    Rewriter rw(g_);
    rw.copy_sources();
    for (Item& item : items_) {
      if (!item.live) continue;
      if (!item.fusable()) {
        rw.copy(*item.other);
        continue;
      }
      item.drop_unused_operands();
      add_made(rw, item.node());
    }
    rw.copy_ends();
    return rw.take();
  }

  const Graph& g_;
  InlineCosts costs_;
  std::vector<Item> items_;
  std::set<int32_t> kept_;                       // outputs and updates
  std::map<int32_t, std::set<size_t>> readers_;  // items that read a value
};

}  // namespace

Graph inline_producers(const Graph& g, const InlineCosts& costs) { return Inliner(g, costs).run(); }

}  // namespace ebb
