#include "passes/spatial_fusion.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/spatial_fusion/op.h"
#include "passes/node_groups.h"

namespace ebb {
namespace {

constexpr size_t max_inputs = 24, max_outputs = 8, max_streams = 6;
constexpr size_t max_instructions = 200;
// flops of an expression that may be recomputed in every sweep
constexpr double cheap_recompute = 60;
constexpr size_t reach = 64;  // largest distance between members, in nodes

using Group = NodeGroups::Group;

// The iteration space: images [N,S...,C] with channels in groups.
struct Images {
  Shape shape;
  int64_t groups = 1;

  Shape channels() const {  // per-channel values of an image
    Shape s = shape;
    for (int64_t d = 1; d + 1 < s.rank(); ++d) s[d] = 1;
    return s;
  }
  std::vector<int64_t> pixel_dims() const {
    std::vector<int64_t> dims;
    for (int64_t d = 1; d + 1 < shape.rank(); ++d) dims.push_back(d);
    return dims;
  }
  double inverse() const {  // 1 / elements of a group
    return static_cast<double>(groups * shape[0]) / static_cast<double>(shape.numel());
  }
};

class SpatialFuser {
 public:
  SpatialFuser(const Graph& g, const std::function<bool(const Signature&)>& supports,
               bool layer_boundaries)
      : g_(g), groups_(g), supports_(supports), layer_boundaries_(layer_boundaries) {}

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (const auto images = groups_.is_free(i) ? images_of(node(i)) : std::nullopt)
        for (const bool producers : {true, false})
          if (form(i, *images, producers)) break;
    return groups_.rebuild([this](const Group& group, Rewriter& rw) { finish(group, rw); });
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }
  size_t producer(int32_t v) const { return static_cast<size_t>(g_.producer(v)); }

  // ---- what a node is -------------------------------------------------------------------------

  static Shape iteration_shape(const Graph& g, const Node& reduce) {
    Shape full(reduce.attrs.as<ops::Reduce>().shape);
    for (const int32_t v : reduce.in) full = broadcast(full, g.type(v).shape, "fuse_spatial");
    return full;
  }

  // The images that a node normalises, or of whose norm it is the gradient.
  std::optional<Images> images_of(const Node& n) const {
    std::optional<Images> images;
    if (n.op == &ops::def::moments()) {
      const auto& a = n.attrs.as<ops::Moments>();
      if (a.axis == 1) images = Images{type(n.in[0]).shape, a.groups};
    } else if (n.op == &ops::def::group_affine_grad() && g_.producer(n.in[0]) >= 0) {
      const Node& sums = node(producer(n.in[0]));
      if (sums.op == &ops::def::reduce())
        images = Images{iteration_shape(g_, sums), n.attrs.as<ops::GroupAffineGrad>().groups};
    }
    if (images && (images->shape.rank() < 3 || images->shape.numel() == 0)) images.reset();
    return images;
  }

  bool is_norm(const Node& n, const Images& m) const {
    const auto of = n.op == &ops::def::moments() ? images_of(n) : std::nullopt;
    return of && of->shape == m.shape && of->groups == m.groups;
  }
  // Whether it applies to statistics of a member.
  bool is_affine(const Node& n, const Images& m, const Group& group) const {
    return n.op == &ops::def::group_affine() && g_.producer(n.in[0]) >= 0 &&
           group.contains(producer(n.in[0])) && type(n.out[0]).shape == m.channels();
  }
  bool is_affine_grad(const Node& n, const Images& m) const {
    return n.op == &ops::def::group_affine_grad() && type(n.out[0]).shape == m.channels() &&
           n.attrs.as<ops::GroupAffineGrad>().groups == m.groups;
  }
  bool is_sum(const Node& n, const Images& m) const {
    if (n.op != &ops::def::reduce()) return false;
    const auto& a = n.attrs.as<ops::Reduce>();
    return a.kind == "sum" && a.dims == m.pixel_dims() && iteration_shape(g_, n) == m.shape;
  }
  bool is_expression(const Node& n, const Shape& shape) const {
    return n.op == &ops::def::pointwise() && type(n.out[0]).shape == shape;
  }
  bool belongs(const Node& n, const Images& m, const Group& group) const {
    for (const int32_t v : n.out)
      if (!is_float(type(v).dtype)) return false;
    return is_norm(n, m) || is_affine(n, m, group) || is_affine_grad(n, m) || is_sum(n, m) ||
           is_expression(n, m.shape) || is_expression(n, m.channels());
  }

  // ---- growing a group ------------------------------------------------------------------------

  // `producers`: also with nodes that produce the images.
  bool form(size_t seed, const Images& m, bool producers) {
    Group group = {seed};
    for (bool grown = true; grown;) {
      grown = false;
      for (const size_t c : candidates(group, m))
        if (joins(c, group, m, producers)) {
          group.insert(c);
          grown = true;
        }
    }
    const bool writes = std::any_of(group.begin(), group.end(),
                                    [&](size_t i) { return is_expression(node(i), m.shape); });
    if (!writes || !results_fit(group, m)) return false;
    const Node joined = joined_node(group, m);
    if (!supports_(groups_.signature(joined))) return false;
    groups_.add(group, joined);
    return true;
  }

  // Readers and producers of the group's values.
  std::vector<size_t> candidates(const Group& group, const Images& m) const {
    std::set<size_t> out;
    const auto consider = [&](size_t i) {
      if (groups_.is_free(i) && !group.contains(i) && i < *group.begin() + reach &&
          *group.rbegin() < i + reach && belongs(node(i), m, group))
        out.insert(i);
    };
    for (const size_t i : group) {
      for (const int32_t v : node(i).out)
        for (const size_t r : groups_.readers(v)) consider(r);
      for (const int32_t v : node(i).in)
        if (g_.producer(v) >= 0) consider(producer(v));
    }
    return {out.begin(), out.end()};
  }

  bool joins(size_t c, const Group& group, const Images& m, bool producers) const {
    const bool wide = is_expression(node(c), m.shape);
    if (wide && groups_.produces_for(c, group)) {
      if (!producers || flops_of(c) > cheap_recompute) return false;
      if (layer_boundaries_ && node(c).at != node(*group.begin()).at) return false;
    }
    Group with = group;
    with.insert(c);
    const std::vector<int32_t> in = groups_.inputs_of(with);
    const auto streams = std::count_if(in.begin(), in.end(), [&](int32_t v) {
      return ops::varies_over_pixels(type(v).shape, m.shape);
    });
    if (in.size() > max_inputs || static_cast<size_t>(streams) > max_streams ||
        outputs_of(with).size() > max_outputs || reads_batch_reduction(with) ||
        !groups_.is_convex(with))
      return false;
    return joined_node(with, m).attrs.as<ops::SpatialFusion>().expr.code().size() <=
           max_instructions;
  }
  double flops_of(size_t i) const { return node(i).attrs.as<ops::Pointwise>().expr.flops(); }

  // The gradients of gamma and beta are reduced over the batch behind the group: no member may read
  // them.
  bool reads_batch_reduction(const Group& group) const {
    for (const size_t i : group)
      for (size_t k = 0; is_grad(i) && k < 2; ++k)
        for (const size_t r : groups_.readers(node(i).out[2 + k]))
          if (group.contains(r)) return true;
    return false;
  }
  bool is_grad(size_t i) const { return node(i).op == &ops::def::group_affine_grad(); }
  bool is_batch_reduction(int32_t v) const {
    const size_t i = producer(v);
    return is_grad(i) && (v == node(i).out[2] || v == node(i).out[3]);
  }

  // Values read outside of the group.
  std::vector<int32_t> outputs_of(const Group& group) const {
    std::vector<int32_t> out;
    for (const size_t i : group)
      for (const int32_t v : node(i).out)
        if (groups_.needed_outside(v, group)) out.push_back(v);
    return out;
  }
  // Per-group values are no result.
  bool results_fit(const Group& group, const Images& m) const {
    const std::vector<int32_t> out = outputs_of(group);
    return std::all_of(out.begin(), out.end(), [&](int32_t v) {
      const Shape& s = type(v).shape;
      return s == m.shape || s == m.channels() || is_batch_reduction(v);
    });
  }

  // ---- the node of a group --------------------------------------------------------------------

  void write(const Node& n, GroupExpressions& f, const Images& m) const {
    if (n.op == &ops::def::moments()) return write_norm(n, f, m);
    if (n.op == &ops::def::group_affine()) return write_affine(n, f);
    if (n.op == &ops::def::group_affine_grad()) return write_affine_grad(n, f, m);
    const bool sum = n.op == &ops::def::reduce();
    const Expr& e = sum ? n.attrs.as<ops::Reduce>().expr : n.attrs.as<ops::Pointwise>().expr;
    const std::vector<Scalar> y = e.apply(f.of(n.in));
    for (size_t k = 0; k < y.size(); ++k)
      f.value.emplace(n.out[k],
                      sum ? f.reduction(y[k], "pixels") * n.attrs.as<ops::Reduce>().scale : y[k]);
  }
  static Scalar group_reduction(const Scalar& operand, GroupExpressions& f) {
    return f.reduction(f.reduction(operand, "pixels"), "groups");
  }
  static void write_norm(const Node& n, GroupExpressions& f, const Images& m) {
    const Scalar x = f.value.at(n.in[0]), mean = group_reduction(x, f) * m.inverse();
    f.value.emplace(n.out[0], mean);
    f.value.emplace(n.out[1], group_reduction((x - mean) * (x - mean), f) * m.inverse());
  }
  static void write_affine(const Node& n, GroupExpressions& f) {
    const std::vector<Scalar> x = f.of(n.in);
    const Scalar rstd = rsqrt(x[1] + n.attrs.as<ops::GroupAffine>().eps);
    const Scalar scale = x.size() > 2 ? rstd * x[2] : rstd;
    const Scalar moved = x[0] * scale;
    const Scalar values[] = {scale, x.size() > 3 ? x[3] - moved : -moved, x[0], rstd};
    for (size_t k = 0; k < n.out.size(); ++k) f.value.emplace(n.out[k], values[k]);
  }
  static void write_affine_grad(const Node& n, GroupExpressions& f, const Images& m) {
    const std::vector<Scalar> x = f.of(n.in);
    const Scalar &s1 = x[0], &s2 = x[1], &mean = x[2], &rstd = x[3];
    const Scalar gamma = x.size() > 4 ? x[4] : Scalar(1.0);
    const Scalar u = f.reduction(s1 * gamma, "groups"), w = f.reduction(s2 * gamma, "groups");
    const Scalar scale = w * rstd * rstd * rstd * -m.inverse();
    const Scalar values[] = {scale, u * rstd * -m.inverse() - mean * scale, s2 * rstd, s1};
    for (size_t k = 0; k < n.out.size(); ++k) f.value.emplace(n.out[k], values[k]);
  }

  Node joined_node(const Group& group, const Images& m) const {
    Node n{&ops::def::spatial_fusion(),
           {},
           groups_.inputs_of(group),
           outputs_of(group),
           node(*group.rbegin()).at};
    GroupExpressions f(n.in);
    for (const size_t i : group) write(node(i), f, m);
    ops::SpatialFusion a{.reductions = f.reductions, .shape = m.shape.sizes(), .groups = m.groups};
    std::vector<Scalar> results = f.operands;
    for (const int32_t v : n.out) {
      results.push_back(f.value.at(v));
      const char* comma = a.extents.empty() ? "" : ",";
      const bool element = type(v).shape == m.shape && !is_batch_reduction(v);
      a.dtypes += str(comma, type(v).dtype);
      a.extents += str(comma, element ? "element" : "channel");
    }
    a.expr = Expr(f.inputs + static_cast<int64_t>(f.operands.size()), results);
    n.attrs = a;
    return n;
  }

  // Reduces the gradients of gamma and beta over the batch.
  void finish(const Group& group, Rewriter& rw) const {
    std::vector<int32_t> values;
    for (const int32_t v : outputs_of(group))
      if (is_batch_reduction(v)) values.push_back(v);
    if (values.empty()) return;
    std::vector<Scalar> x;
    for (size_t k = 0; k < values.size(); ++k) x.push_back(Scalar::input(static_cast<int64_t>(k)));
    const ops::Reduce a{.expr = Expr(static_cast<int64_t>(x.size()), x), .dims = {0}};
    const std::vector<Value> sums = ops::reduce(rw.to(), a, rw.map(values));
    for (size_t k = 0; k < values.size(); ++k)
      rw.set(values[k], ops::reshape(sums[k], type(values[k]).shape));
  }

  const Graph& g_;
  NodeGroups groups_;
  const std::function<bool(const Signature&)>& supports_;
  bool layer_boundaries_;
};

}  // namespace

Graph fuse_spatial(const Graph& g, const std::function<bool(const Signature&)>& supports,
                   bool layer_boundaries) {
  return SpatialFuser(g, supports, layer_boundaries).run();
}

}  // namespace ebb
