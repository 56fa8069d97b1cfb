#include "passes/row_fusion.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/row_fusion/op.h"
#include "passes/node_groups.h"

namespace ebb {
namespace {

constexpr size_t max_inputs = 24, max_outputs = 8, max_streams = 6;
constexpr size_t max_instructions = 200;
constexpr int64_t shortest = 64;  // shortest row worth fusing
constexpr double cheap_recompute =
    30;  // flops of an expression that may be recomputed in every sweep
constexpr size_t max_column_reductions = 6;  // results of column reductions

using Group = NodeGroups::Group;

class RowFuser {
 public:
  RowFuser(const Graph& g, const std::function<bool(const Signature&)>& supports,
           bool layer_boundaries)
      : g_(g), groups_(g), supports_(supports), layer_boundaries_(layer_boundaries) {}

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (groups_.is_free(i) && reduction_shape(node(i))) form(i);
    return groups_.rebuild([this](const Group& group, Rewriter& rw) { finish(group, rw); });
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }
  size_t first_reduction(const Group& group) const {
    return *std::find_if(group.begin(), group.end(),
                         [&](size_t m) { return reduction_shape(node(m)).has_value(); });
  }

  // ---- what a node is ------------------------------------------------------------------------

  // The iteration shape of a reduction along rows; none for other nodes.
  std::optional<Shape> reduction_shape(const Node& n) const {
    std::optional<Shape> shape;
    if (n.op == &ops::def::moments()) {
      const auto& a = n.attrs.as<ops::Moments>();
      if (a.groups == 1 && a.axis == type(n.in[0]).shape.rank() - 1) shape = type(n.in[0]).shape;
    } else if (n.op == &ops::def::reduce()) {
      const auto& a = n.attrs.as<ops::Reduce>();
      Shape full(a.shape);
      for (const int32_t v : n.in) full = broadcast(full, type(v).shape, "rows");
      if (a.dims == std::vector<int64_t>{full.rank() - 1}) shape = full;
    }
    if (shape && ((*shape)[-1] < shortest || shape->numel() == 0)) shape.reset();
    return shape;
  }
  static Shape row_shape(Shape s) {
    s[-1] = 1;
    return s;
  }
  bool is_wide(const Node& n, const Shape& s) const {
    return n.op == &ops::def::pointwise() && type(n.out[0]).shape == s;
  }
  bool is_narrow(const Node& n, const Shape& s) const {
    return n.op == &ops::def::pointwise() && type(n.out[0]).shape == row_shape(s);
  }
  // Column reductions over rows of `s`: partial sums are taken while the rows are read.
  bool is_column_reduction(const Node& n, const Shape& s) const {
    if (n.op != &ops::def::reduce() || partial_rows_of(s) == 0) return false;
    const auto& a = n.attrs.as<ops::Reduce>();
    Shape full(a.shape);
    for (const int32_t v : n.in) full = broadcast(full, type(v).shape, "rows");
    const auto has = [&](int64_t d) {
      return std::find(a.dims.begin(), a.dims.end(), d) != a.dims.end();
    };
    return full == s && a.kind == "sum" && has(s.rank() - 2) && !has(s.rank() - 1);
  }
  // Rows per thread block for partial column reductions, such that a GPU's blocks are resident at
  // once. 0: none.
  static int64_t partial_rows_of(const Shape& s) {
    if (s.rank() < 2) return 0;
    constexpr int64_t groups = 256;
    for (const int64_t rows : {32, 16})
      if (s[-2] % rows == 0 && s.numel() / s[-1] / rows >= groups) return rows;
    return 0;
  }
  bool belongs(const Node& n, const Shape& s) const {
    for (const int32_t v : n.out)
      if (!is_float(type(v).dtype)) return false;
    return is_wide(n, s) || is_narrow(n, s) || reduction_shape(n) == s || is_column_reduction(n, s);
  }

  // ---- growing a group -----------------------------------------------------------------------

  void form(size_t seed) {
    const Shape shape = *reduction_shape(node(seed));
    Group group = {seed};
    for (bool grown = true; grown;) {
      grown = false;
      for (const size_t c : candidates(group, shape))
        if (joins(c, group, shape)) {
          group.insert(c);
          grown = true;
        }
    }
    const bool maps =
        std::any_of(group.begin(), group.end(), [&](size_t m) { return is_wide(node(m), shape); });
    const Node joined = maps ? joined_node(group, shape) : Node{};
    if (maps && supports_(groups_.signature(joined))) groups_.add(group, joined);
  }

  // Nodes that read or write the group's inputs or results.
  std::vector<size_t> candidates(const Group& group, const Shape& shape) const {
    std::set<size_t> out;
    const auto consider = [&](size_t i) {
      if (groups_.is_free(i) && !group.contains(i) && belongs(node(i), shape)) out.insert(i);
    };
    const auto readers = [&](int32_t v) {
      for (const size_t r : groups_.readers(v)) consider(r);
    };
    for (const size_t m : group) {
      for (const int32_t v : node(m).out) readers(v);
      for (const int32_t v : node(m).in) {
        if (!(type(v).shape == shape)) continue;
        readers(v);
        if (g_.producer(v) >= 0) consider(static_cast<size_t>(g_.producer(v)));
      }
    }
    return {out.begin(), out.end()};
  }

  bool joins(size_t c, const Group& group, const Shape& shape) const {
    Group with = group;
    with.insert(c);
    if (groups_.produces_for(c, group)) {
      if (flops_of(c) > cheap_recompute) return false;
      if (layer_boundaries_ && node(c).at != node(*group.begin()).at) return false;
    }
    if (!groups_.is_convex(with) || reads_column_reduction(with, shape)) return false;
    const std::vector<int32_t> in = groups_.inputs_of(with), out = outputs_of(with, shape);
    const auto full = [&](int32_t v) { return type(v).shape == shape; };
    if (in.size() > max_inputs || out.size() > max_outputs) return false;
    if (static_cast<size_t>(std::count_if(in.begin(), in.end(), full)) > max_streams) return false;
    const Node n = joined_node(with, shape);
    if (column_reductions(with, shape) > max_column_reductions) return false;
    if (n.attrs.as<ops::RowFusion>().expr.code().size() > max_instructions) return false;
    return column_reductions(with, shape) == 0 || supports_(groups_.signature(n));
  }

  // Column reductions are finished behind the group: no member may read one.
  bool reads_column_reduction(const Group& group, const Shape& shape) const {
    return std::any_of(group.begin(), group.end(), [&](size_t m) {
      return is_column_reduction(node(m), shape) && groups_.produces_for(m, group);
    });
  }

  size_t column_reductions(const Group& group, const Shape& shape) const {
    size_t n = 0;
    for (const size_t m : group)
      if (is_column_reduction(node(m), shape)) n += node(m).out.size();
    return n;
  }

  double flops_of(size_t i) const {
    return node(i).op == &ops::def::pointwise() ? node(i).attrs.as<ops::Pointwise>().expr.flops()
                                                : 0;
  }

  // ---- the node of a group -------------------------------------------------------------------

  // Values read outside of the group; column reductions come last.
  std::vector<int32_t> outputs_of(const Group& group, const Shape& shape) const {
    std::vector<int32_t> out;
    for (const size_t m : group)
      for (const int32_t v : node(m).out) {
        if (is_column_reduction(node(m), shape)) continue;
        if (groups_.needed_outside(v, group)) out.push_back(v);
      }
    for (const size_t m : group)
      if (is_column_reduction(node(m), shape))
        out.insert(out.end(), node(m).out.begin(), node(m).out.end());
    return out;
  }

  void write(const Node& n, GroupExpressions& f, const Shape& shape) const {
    const std::vector<Scalar> x = f.of(n.in);
    if (n.op == &ops::def::moments()) {
      const double inv = 1.0 / static_cast<double>(type(n.in[0]).shape[-1]);
      const Scalar mean = f.reduction(x[0], "sum") * inv;
      const Scalar var = f.reduction((x[0] - mean) * (x[0] - mean), "sum") * inv;
      f.value.emplace(n.out[0], mean);
      f.value.emplace(n.out[1], var);
      return;
    }
    const bool reduction = n.op == &ops::def::reduce(),
               along_rows = reduction && !is_column_reduction(n, shape);
    const Expr& e = reduction ? n.attrs.as<ops::Reduce>().expr : n.attrs.as<ops::Pointwise>().expr;
    const std::vector<Scalar> y = e.apply(x);
    for (size_t k = 0; k < y.size(); ++k) {
      if (!along_rows) {
        f.value.emplace(n.out[k], y[k]);
        continue;
      }
      const auto& a = n.attrs.as<ops::Reduce>();
      const Scalar t = f.reduction(y[k], a.kind);
      f.value.emplace(n.out[k], a.kind == "sum" ? t * a.scale : t);
    }
  }

  Node joined_node(const Group& group, const Shape& shape) const {
    Node n{&ops::def::row_fusion(),
           {},
           groups_.inputs_of(group),
           outputs_of(group, shape),
           node(*group.rbegin()).at};
    GroupExpressions f(n.in);
    for (const size_t m : group) write(node(m), f, shape);
    ops::RowFusion a{.reductions = f.reductions, .shape = shape.sizes()};
    std::vector<Scalar> results = f.operands;
    for (const int32_t v : n.out) {
      results.push_back(f.value.at(v));
      const bool partial_rows =
          is_column_reduction(node(static_cast<size_t>(g_.producer(v))), shape);
      const char* comma = a.extents.empty() ? "" : ",";
      a.dtypes += str(comma, type(v).dtype);
      a.extents += str(comma, partial_rows             ? "partial"
                              : type(v).shape == shape ? "element"
                                                       : "row");
      if (partial_rows) a.partial_rows = partial_rows_of(shape);
    }
    a.expr = Expr(f.inputs + static_cast<int64_t>(f.operands.size()), results);
    n.attrs = a;
    return n;
  }

  // ---- the new graph -------------------------------------------------------------------------

  void finish(const Group& group, Rewriter& rw) const {
    const Shape shape = *reduction_shape(node(first_reduction(group)));
    std::vector<size_t> across;
    for (const size_t m : group)
      if (is_column_reduction(node(m), shape)) across.push_back(m);
    while (!across.empty()) add_partial_sums(across, rw);
  }

  // The final sums of the first node's partial sums, and of others over the same dims.
  void add_partial_sums(std::vector<size_t>& nodes, Rewriter& rw) const {
    const auto& first = node(nodes[0]).attrs.as<ops::Reduce>();
    std::vector<int32_t> values;
    std::erase_if(nodes, [&](size_t m) {
      const auto& a = node(m).attrs.as<ops::Reduce>();
      const bool same = a.dims == first.dims && a.scale == first.scale;
      if (same) values.insert(values.end(), node(m).out.begin(), node(m).out.end());
      return same;
    });
    std::vector<Scalar> x;
    for (size_t k = 0; k < values.size(); ++k) x.push_back(Scalar::input(static_cast<int64_t>(k)));
    const ops::Reduce a{
        .expr = Expr(static_cast<int64_t>(x.size()), x), .dims = first.dims, .scale = first.scale};
    const std::vector<Value> sums = ops::reduce(rw.to(), a, rw.map(values));
    for (size_t k = 0; k < values.size(); ++k) rw.set(values[k], sums[k]);
  }

  const Graph& g_;
  NodeGroups groups_;
  const std::function<bool(const Signature&)>& supports_;
  bool layer_boundaries_;
};

}  // namespace

Graph fuse_rows(const Graph& g, const std::function<bool(const Signature&)>& supports,
                bool layer_boundaries) {
  return RowFuser(g, supports, layer_boundaries).run();
}

}  // namespace ebb
