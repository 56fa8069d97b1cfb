#include "passes/fusion/fuse_loops.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/prim/reshape/op.h"
#include "passes/expression_node.h"
#include "passes/fusion/loop_space.h"
#include "passes/fusion/node_groups.h"

namespace ebb {
namespace {

using Group = NodeGroups::Group;
using ops::Extent, ops::LoopKind;
using Over = ops::LoopReduction::Over;

constexpr size_t max_inputs = 24, max_outputs = 8, max_streams = 6, max_column_reductions = 6;
constexpr size_t max_instructions = 200;
constexpr size_t reach = 64;  // largest distance between members of a loop over pixels, in nodes

// Flops of an element that may be computed again in every sweep; a map has one.
double cheap_recompute(LoopKind kind) {
  if (kind == LoopKind::map) return std::numeric_limits<double>::infinity();
  return kind == LoopKind::rows ? 30 : 60;
}

// Gives the reductions of one node to the loop that it is written into.
class MemberReductions final : public LoopReductions {
 public:
  MemberReductions(GroupExpressions& to, const LoopForm& form, LoopRole role, LoopKind kind)
      : to_(to), form_(form), role_(role), kind_(kind) {}

  Scalar reduced(const Scalar& operand) override {
    // summed behind the loop, or by the node that a map becomes
    if (role_ == LoopRole::columns || kind_ == LoopKind::map) return operand;
    Scalar v =
        to_.reduction(operand, {kind_ == LoopKind::rows ? Over::row : Over::pixels,
                                form_.maximum ? ops::ReduceKind::max : ops::ReduceKind::sum});
    if (form_.groups != 0) v = group_sum(v);
    return form_.maximum ? v : v * form_.scale;
  }
  Scalar group_sum(const Scalar& operand) override {
    return to_.reduction(operand, {Over::groups});
  }

 private:
  GroupExpressions& to_;
  const LoopForm& form_;
  LoopRole role_;
  LoopKind kind_;
};

class LoopFuser {
 public:
  LoopFuser(const Graph& g, LoopKind kind, const FuseLoops& how)
      : g_(g), kind_(kind), how_(how), groups_(g) {
    for (const Node& n : g.nodes()) {
      uses_.push_back(n.op->loop ? g.signature(n) : Signature{});
      forms_.push_back(n.op->loop ? n.op->loop(uses_.back()) : std::nullopt);
    }
  }

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const auto space = LoopSpace::from(g_, forms_, i, kind_);
      if (!groups_.is_free(i) || !space) continue;
      space_ = *space;
      if (!belongs(i)) continue;
      // along rows, what a producer costs is bounded; over pixels it may cost the whole loop
      if (!form(i, true) && kind_ == LoopKind::pixels) form(i, false);
    }
    return groups_.rebuild([this](const Group& group, Rewriter& rw) { complete(group, rw); });
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }
  size_t producer(int32_t v) const { return static_cast<size_t>(g_.producer(v)); }
  LoopRole role(size_t i) const { return forms_[i] ? space_.role_of(*forms_[i]) : LoopRole::none; }
  bool belongs(size_t i) const {
    for (const int32_t v : node(i).out)
      if (!is_float(type(v).dtype)) return false;
    return role(i) != LoopRole::none;
  }

  // ---- growing a group -----------------------------------------------------------------------

  // `producers`: also with nodes that produce the operands.
  bool form(size_t seed, bool producers) {
    Group group = {seed};
    for (bool grown = true; grown;) {
      grown = false;
      for (const size_t c : candidates(group))
        if (joins(c, group, producers)) {
          group.insert(c);
          grown = true;
        }
    }
    const bool writes = kind_ == LoopKind::map || std::ranges::any_of(group, [&](size_t i) {
                          return role(i) == LoopRole::elements;
                        });
    if (group.size() == 1 || !writes || !results_fit(group)) return false;
    const Node all = node_of(joined(group));
    if (!how_.supports(groups_.signature(all))) return false;
    groups_.add(group, all);
    spaces_[*group.begin()] = space_;
    return true;
  }

  // Nodes that read or write the group's values, or read the same tensors.
  std::vector<size_t> candidates(const Group& group) const {
    const bool pixels = kind_ == LoopKind::pixels;
    std::set<size_t> out;
    const auto consider = [&](size_t i) {
      const bool near = !pixels || (i < *group.begin() + reach && *group.rbegin() < i + reach);
      if (near && groups_.is_free(i) && !group.contains(i) && belongs(i)) out.insert(i);
    };
    for (const size_t m : group) {
      for (const int32_t v : node(m).out)
        for (const size_t r : groups_.readers(v)) consider(r);
      for (const int32_t v : node(m).in) {
        const bool full = type(v).shape == space_.shape;
        if (full)
          for (const size_t r : groups_.readers(v)) consider(r);
        if ((full || pixels) && g_.producer(v) >= 0) consider(producer(v));
      }
    }
    return {out.begin(), out.end()};
  }

  bool joins(size_t c, const Group& group, bool producers) const {
    const bool pixels = kind_ == LoopKind::pixels, map = kind_ == LoopKind::map;
    if ((!pixels || role(c) == LoopRole::elements) && groups_.produces_for(c, group)) {
      if (!producers || flops_of(c) > cheap_recompute(kind_)) return false;
      if (how_.layer_boundaries && node(c).at != node(*group.begin()).at) return false;
    }
    Group with = group;
    with.insert(c);
    const std::vector<int32_t> in = groups_.inputs_of(with);
    const auto streams = [&](int32_t v) { return space_.streams(type(v).shape); };
    if (!groups_.is_convex(with) || reads_unfinished(with) || !has_inside(with) ||
        in.size() > max_inputs || (!map && outputs_of(with).size() > max_outputs) ||
        (!map && static_cast<size_t>(std::ranges::count_if(in, streams)) > max_streams))
      return false;
    const Joined j = joined(with);
    if (j.nodes.expr.code().size() > max_instructions) return false;
    const size_t columns = column_reductions(with);
    return columns == 0 ||
           (columns <= max_column_reductions && how_.supports(groups_.signature(node_of(j))));
  }

  // Of an element.
  double flops_of(size_t i) const {
    if (!forms_[i]->dims.empty()) return 0;
    return cost_of(uses_[i]).flops / static_cast<double>(uses_[i].out[0].shape.numel());
  }
  size_t column_reductions(const Group& group) const {
    size_t n = 0;
    for (const size_t m : group)
      if (role(m) == LoopRole::columns) n += node(m).out.size();
    return n;
  }

  // Whether what must be computed in the same loop is.
  bool has_inside(const Group& group) const {
    for (const size_t m : group)
      for (size_t i = 0; i < forms_[m]->inside; ++i) {
        const int32_t p = g_.producer(node(m).in[i]);
        if (p < 0 || !group.contains(static_cast<size_t>(p))) return false;
      }
    return true;
  }

  // Whether result `k` of node `i` is finished behind the loop, or by the node that a map becomes.
  bool unfinished(size_t i, size_t k) const {
    const LoopRole r = role(i);
    return r == LoopRole::columns || (kind_ == LoopKind::map && r == LoopRole::reduces) ||
           std::ranges::find(forms_[i]->summed_over_images, k) !=
               forms_[i]->summed_over_images.end();
  }
  bool reads_unfinished(const Group& group) const {
    for (const size_t i : group)
      for (size_t k = 0; k < node(i).out.size(); ++k)
        for (const size_t r : groups_.readers(node(i).out[k]))
          if (unfinished(i, k) && group.contains(r)) return true;
    return false;
  }

  // ---- the node of a group -------------------------------------------------------------------

  // Values read outside of the group; column reductions come last.
  std::vector<int32_t> outputs_of(const Group& group) const {
    std::vector<int32_t> out;
    for (const size_t m : group)
      for (const int32_t v : node(m).out)
        if (role(m) != LoopRole::columns && groups_.needed_outside(v, group)) out.push_back(v);
    for (const size_t m : group)
      if (role(m) == LoopRole::columns)
        out.insert(out.end(), node(m).out.begin(), node(m).out.end());
    return out;
  }

  // None: a loop has no such result (a value for each group of channels).
  std::optional<Extent> extent_of(int32_t v) const {
    const size_t i = producer(v);
    const bool rows = kind_ == LoopKind::rows;
    if (role(i) == LoopRole::columns) return Extent::partial;
    const auto k = static_cast<size_t>(std::ranges::find(node(i).out, v) - node(i).out.begin());
    if (unfinished(i, k)) return Extent::channel;
    if (type(v).shape == space_.shape) return Extent::element;
    if (type(v).shape == space_.scalars()) return rows ? Extent::row : Extent::channel;
    return {};
  }
  bool results_fit(const Group& group) const {
    const std::vector<int32_t> out = outputs_of(group);
    return std::all_of(out.begin(), out.end(), [&](int32_t v) { return extent_of(v).has_value(); });
  }

  // The expression of a group, whose first results are the operands of the reductions.
  struct Joined {
    ExpressionNode nodes;
    ListOf<ops::LoopReduction> reductions;
  };
  Joined joined(const Group& group) const {
    ExpressionNode e{.space = space_.shape,
                     .in = groups_.inputs_of(group),
                     .out = outputs_of(group),
                     .at = node(*group.rbegin()).at};
    GroupExpressions f(e.in);
    for (const size_t m : group) write(m, f);
    std::vector<Scalar> results = f.operands;
    for (const int32_t v : e.out) {
      results.push_back(f.value.at(v));
      e.dtypes.push_back(type(v).dtype);
    }
    e.expr = Expr(f.inputs + static_cast<int64_t>(f.operands.size()), results);
    if (!space_.reduction.dims.empty()) e.reduction = space_.reduction;
    return {e, f.reductions};
  }

  Node node_of(const Joined& j) const {
    const ExpressionNode& e = j.nodes;
    if (kind_ == LoopKind::map) return e.node();
    ops::Loop a{.expr = e.expr,
                .reductions = j.reductions,
                .shape = space_.shape.sizes(),
                .groups = space_.groups,
                .row_dims = kind_ == LoopKind::rows ? space_.row_dims() : 1};
    for (const int32_t v : e.out) {
      const Extent extent = extent_of(v).value_or(Extent::element);
      const bool partial = extent == Extent::partial;
      a.results.push_back({partial ? DType::f32 : type(v).dtype, extent});
      if (partial) a.partial_rows = space_.partial_rows();
    }
    return {&ops::def::loop(), a, e.in, e.out, e.at};
  }

  void write(size_t m, GroupExpressions& f) const {
    const LoopForm& form = *forms_[m];
    MemberReductions reductions(f, form, role(m), kind_);
    const std::vector<Scalar> y = form.write(uses_[m], f.of(node(m).in), reductions);
    for (size_t k = 0; k < y.size(); ++k) f.value.emplace(node(m).out[k], y[k]);
  }

  // ---- behind the loop -----------------------------------------------------------------------

  void complete(const Group& group, Rewriter& rw) {
    space_ = spaces_.at(*group.begin());
    std::vector<size_t> columns;
    std::vector<int32_t> over_images;
    for (const size_t m : group) {
      if (role(m) == LoopRole::columns) {
        columns.push_back(m);
        continue;
      }
      for (const size_t k : forms_[m]->summed_over_images)
        if (groups_.needed_outside(node(m).out[k], group)) over_images.push_back(node(m).out[k]);
    }
    while (!columns.empty()) add_partial_sums(columns, rw);
    sum(over_images, {0}, 1, rw);
  }

  // The final sums of the first node's partial sums, and of others over the same dims.
  void add_partial_sums(std::vector<size_t>& nodes, Rewriter& rw) const {
    const LoopForm& first = *forms_[nodes[0]];
    std::vector<int32_t> values;
    std::erase_if(nodes, [&](size_t m) {
      const bool same = forms_[m]->dims == first.dims && forms_[m]->scale == first.scale;
      if (same) values.insert(values.end(), node(m).out.begin(), node(m).out.end());
      return same;
    });
    sum(values, first.dims, first.scale, rw);
  }

  void sum(const std::vector<int32_t>& values, const std::vector<int64_t>& dims, double scale,
           Rewriter& rw) const {
    if (values.empty()) return;
    ExpressionNode e{.reduction = Reduction{.dims = dims, .scale = scale}};
    std::vector<Scalar> x;
    for (const int32_t v : values) {
      x.push_back(Scalar::input(static_cast<int64_t>(x.size())));
      e.dtypes.push_back(type(v).dtype);
    }
    e.expr = Expr(static_cast<int64_t>(x.size()), x);
    const Node n = e.node();
    const std::vector<Value> sums = rw.to().add(*n.op, n.attrs, rw.map(values));
    for (size_t k = 0; k < values.size(); ++k)
      rw.set(values[k], ops::reshape(sums[k], type(values[k]).shape));
  }

  const Graph& g_;
  LoopKind kind_;
  const FuseLoops& how_;
  NodeGroups groups_;
  std::vector<Signature> uses_;  // by node, of ops that have forms
  LoopForms forms_;
  LoopSpace space_;                     // of the group in hand
  std::map<size_t, LoopSpace> spaces_;  // by a group's first member
};

}  // namespace

Graph fuse_loops(const Graph& g, const FuseLoops& how) {
  const auto fused = [&](const Graph& before, LoopKind kind) {
    return LoopFuser(before, kind, how).run();
  };
  if (!how.reductions) return fused(g, LoopKind::map);
  return fused(fused(fused(g, LoopKind::pixels), LoopKind::rows), LoopKind::map);
}

}  // namespace ebb
