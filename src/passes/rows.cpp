#include "passes/rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/rows/op.h"

namespace ebb {
namespace {

constexpr size_t max_inputs = 24, max_outputs = 8, max_streams = 6;
constexpr size_t max_instructions = 200;
constexpr int64_t shortest = 64;    // rows worth it
constexpr double cheap_again = 30;  // flops of a formula that may be computed in every round
constexpr size_t max_sums = 6;      // across rows

// Members in the order of the graph.
using Group = std::set<size_t>;

class RowJoiner {
 public:
  RowJoiner(const Graph& g, const std::function<bool(const Signature&)>& serves, bool apart)
      : g_(g), serves_(serves), apart_(apart), group_of_(g.nodes().size(), -1) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      for (const int32_t v : g.nodes()[i].in) readers_[v].insert(i);
    for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
    for (const NamedValue& u : g.updates()) kept_.insert(u.value);
  }

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i)
      if (group_of_[i] < 0 && total_shape(node(i))) form(i);
    return groups_.empty() ? g_ : rebuild();
  }

 private:
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }

  // ---- what a node is ------------------------------------------------------------------------

  // The rows that a node takes totals of.
  std::optional<Shape> total_shape(const Node& n) const {
    std::optional<Shape> shape;
    if (n.op == &ops::def::moments()) {
      const auto& a = n.attrs.as<ops::Moments>();
      if (a.groups == 1 && a.axis == type(n.in[0]).shape.rank() - 1) shape = type(n.in[0]).shape;
    } else if (n.op == &ops::def::reduce()) {
      const auto& a = n.attrs.as<ops::Reduce>();
      Shape whole(a.shape);
      for (const int32_t v : n.in) whole = broadcast(whole, type(v).shape, "rows");
      if (a.dims == std::vector<int64_t>{whole.rank() - 1}) shape = whole;
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
  // Sums of columns over rows of `s`: parts of them are taken where the rows are at hand.
  bool is_across(const Node& n, const Shape& s) const {
    if (n.op != &ops::def::reduce() || stripe_of(s) == 0) return false;
    const auto& a = n.attrs.as<ops::Reduce>();
    Shape whole(a.shape);
    for (const int32_t v : n.in) whole = broadcast(whole, type(v).shape, "rows");
    const auto has = [&](int64_t d) {
      return std::find(a.dims.begin(), a.dims.end(), d) != a.dims.end();
    };
    return whole == s && a.kind == "sum" && has(s.rank() - 2) && !has(s.rank() - 1);
  }
  // Rows that one group of threads sums, so many that a GPU's groups run at once. 0: none.
  static int64_t stripe_of(const Shape& s) {
    if (s.rank() < 2) return 0;
    constexpr int64_t groups = 256;
    for (const int64_t stripe : {32, 16})
      if (s[-2] % stripe == 0 && s.numel() / s[-1] / stripe >= groups) return stripe;
    return 0;
  }
  bool belongs(const Node& n, const Shape& s) const {
    for (const int32_t v : n.out)
      if (!is_float(type(v).dtype)) return false;
    return is_wide(n, s) || is_narrow(n, s) || total_shape(n) == s || is_across(n, s);
  }

  // ---- growing a group -----------------------------------------------------------------------

  void form(size_t seed) {
    const Shape shape = *total_shape(node(seed));
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
    if (!maps || !serves_(signature(joined))) return;
    for (const size_t m : group) group_of_[m] = static_cast<int32_t>(groups_.size());
    groups_.push_back(group);
    joined_.push_back(joined);
  }

  // Nodes that touch what the group reads or makes.
  std::vector<size_t> candidates(const Group& group, const Shape& shape) const {
    std::set<size_t> out;
    const auto consider = [&](size_t i) {
      if (group_of_[i] < 0 && !group.contains(i) && belongs(node(i), shape)) out.insert(i);
    };
    const auto readers = [&](int32_t v) {
      if (const auto at = readers_.find(v); at != readers_.end())
        for (const size_t r : at->second) consider(r);
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
    if (makes_for(c, group)) {
      if (flops_of(c) > cheap_again) return false;
      if (apart_ && node(c).at != node(*group.begin()).at) return false;
    }
    if (leaves_and_returns(with) || needs_a_sum_across(with, shape)) return false;
    const std::vector<int32_t> in = inputs_of(with), out = outputs_of(with, shape);
    const auto full = [&](int32_t v) { return type(v).shape == shape; };
    if (in.size() > max_inputs || out.size() > max_outputs) return false;
    if (static_cast<size_t>(std::count_if(in.begin(), in.end(), full)) > max_streams) return false;
    const Node n = joined_node(with, shape);
    if (sums_of(with, shape) > max_sums) return false;
    if (n.attrs.as<ops::Rows>().expr.code().size() > max_instructions) return false;
    return sums_of(with, shape) == 0 || serves_(signature(n));
  }

  // Sums across rows are begun in a group and ended behind it: no member may need one.
  bool needs_a_sum_across(const Group& group, const Shape& shape) const {
    return std::any_of(group.begin(), group.end(),
                       [&](size_t m) { return is_across(node(m), shape) && makes_for(m, group); });
  }

  size_t sums_of(const Group& group, const Shape& shape) const {
    size_t n = 0;
    for (const size_t m : group)
      if (is_across(node(m), shape)) n += node(m).out.size();
    return n;
  }

  // Whether members read what c makes.
  bool makes_for(size_t c, const Group& group) const {
    for (const int32_t v : node(c).out)
      if (const auto at = readers_.find(v); at != readers_.end())
        for (const size_t r : at->second)
          if (group.contains(r)) return true;
    return false;
  }
  double flops_of(size_t i) const {
    return node(i).op == &ops::def::pointwise() ? node(i).attrs.as<ops::Pointwise>().expr.flops()
                                                : 0;
  }

  // Nodes before this one need none of the group: no group made so far reaches across it.
  size_t cut_before(const Group& group) const {
    size_t cut = *group.begin();
    for (bool moved = true; moved;) {
      moved = false;
      for (const Group& g : groups_)
        if (*g.begin() < cut && *g.rbegin() >= cut) {
          cut = *g.begin();
          moved = true;
        }
    }
    return cut;
  }

  // Whether something outside needs a member and is needed by one: it could stand neither before
  // the group nor after it. Groups made so far count as one node each.
  bool leaves_and_returns(const Group& group) const {
    const size_t first = cut_before(group);
    std::vector<bool> seen(g_.nodes().size());
    std::vector<size_t> open;
    const auto visit = [&](size_t i) {
      if (i < first) return;
      const int32_t other = group_of_[i];
      const Group one = {i};
      for (const size_t m : other < 0 ? one : groups_[static_cast<size_t>(other)]) {
        if (seen[m]) continue;
        seen[m] = true;
        open.push_back(m);
      }
    };
    const auto visit_inputs = [&](size_t i, bool member) {
      for (const int32_t v : node(i).in) {
        const int32_t p = g_.producer(v);
        if (p < 0) continue;
        const bool inside = group.contains(static_cast<size_t>(p));
        if (inside && !member) return true;
        if (!inside) visit(static_cast<size_t>(p));
      }
      return false;
    };
    for (const size_t m : group) visit_inputs(m, true);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      if (visit_inputs(i, false)) return true;
    }
    return false;
  }

  // ---- the node of a group -------------------------------------------------------------------

  std::vector<int32_t> inputs_of(const Group& group) const {
    std::vector<int32_t> in;
    for (const size_t m : group)
      for (const int32_t v : node(m).in) {
        const int32_t p = g_.producer(v);
        if (p >= 0 && group.contains(static_cast<size_t>(p))) continue;
        if (std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
      }
    return in;
  }

  // What is read elsewhere; sums across rows come last.
  std::vector<int32_t> outputs_of(const Group& group, const Shape& shape) const {
    std::vector<int32_t> out;
    for (const size_t m : group)
      for (const int32_t v : node(m).out) {
        if (is_across(node(m), shape)) continue;
        const auto at = readers_.find(v);
        const bool read =
            at != readers_.end() && std::any_of(at->second.begin(), at->second.end(),
                                                [&](size_t r) { return !group.contains(r); });
        if (read || kept_.contains(v)) out.push_back(v);
      }
    for (const size_t m : group)
      if (is_across(node(m), shape)) out.insert(out.end(), node(m).out.begin(), node(m).out.end());
    return out;
  }

  // The formulas of a group's values as they are written, member by member.
  struct Formulas {
    int64_t inputs = 0;
    std::map<int32_t, Scalar> value;
    std::vector<Scalar> terms;
    std::string totals;

    Scalar total(const Scalar& term, std::string_view kind) {
      totals += str(totals.empty() ? "" : ",", kind);
      terms.push_back(term);
      return Scalar::input(inputs + static_cast<int64_t>(terms.size()) - 1);
    }
  };

  void write(const Node& n, Formulas& f, const Shape& shape) const {
    std::vector<Scalar> x;
    for (const int32_t v : n.in) x.push_back(f.value.at(v));
    if (n.op == &ops::def::moments()) {
      const double inv = 1.0 / static_cast<double>(type(n.in[0]).shape[-1]);
      const Scalar mean = f.total(x[0], "sum") * inv;
      const Scalar var = f.total((x[0] - mean) * (x[0] - mean), "sum") * inv;
      f.value.emplace(n.out[0], mean);
      f.value.emplace(n.out[1], var);
      return;
    }
    const bool reduction = n.op == &ops::def::reduce(), total = reduction && !is_across(n, shape);
    const Expr& e = reduction ? n.attrs.as<ops::Reduce>().expr : n.attrs.as<ops::Pointwise>().expr;
    const std::vector<Scalar> y = e.apply(x);
    for (size_t k = 0; k < y.size(); ++k) {
      if (!total) {
        f.value.emplace(n.out[k], y[k]);
        continue;
      }
      const auto& a = n.attrs.as<ops::Reduce>();
      const Scalar t = f.total(y[k], a.kind);
      f.value.emplace(n.out[k], a.kind == "sum" ? t * a.scale : t);
    }
  }

  Node joined_node(const Group& group, const Shape& shape) const {
    Node n{&ops::def::rows(),
           {},
           inputs_of(group),
           outputs_of(group, shape),
           node(*group.rbegin()).at};
    Formulas f{.inputs = static_cast<int64_t>(n.in.size())};
    for (const int32_t v : n.in)
      f.value.emplace(v, Scalar::input(static_cast<int64_t>(f.value.size())));
    for (const size_t m : group) write(node(m), f, shape);
    ops::Rows a{.totals = f.totals, .shape = shape.sizes()};
    std::vector<Scalar> results = f.terms;
    for (const int32_t v : n.out) {
      results.push_back(f.value.at(v));
      const bool stripe = is_across(node(static_cast<size_t>(g_.producer(v))), shape);
      const char* comma = a.per.empty() ? "" : ",";
      a.dtypes += str(comma, type(v).dtype);
      a.per += str(comma, stripe ? "stripe" : type(v).shape == shape ? "element" : "row");
      if (stripe) a.stripe = stripe_of(shape);
    }
    a.expr = Expr(f.inputs + static_cast<int64_t>(f.terms.size()), results);
    n.attrs = a;
    return n;
  }

  Signature signature(const Node& n) const {
    Signature s{n.op, n.attrs, {}, {}, n.at};
    for (const int32_t v : n.in) s.in.push_back(type(v));
    s.out = n.op->infer(s);
    return s;
  }

  // ---- the new graph -------------------------------------------------------------------------

  // Nodes in their order; a group stands where its last member stood, or before what needs it.
  Graph rebuild() {
    Rewriter rw(g_);
    rw.copy_sources();
    std::vector<bool> done(g_.nodes().size());
    std::vector<size_t> open;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const int32_t group = group_of_[i];
      if (group >= 0 && *groups_[static_cast<size_t>(group)].rbegin() != i) continue;
      open.push_back(i);
      while (!open.empty()) {
        const size_t next = open.back();
        if (!done[next] && wait_for_inputs(next, done, open)) continue;
        open.pop_back();
        if (!done[next]) place(next, rw, done);
      }
    }
    rw.copy_ends();
    return rw.take();
  }

  const Node& as_placed(size_t i) const {
    return group_of_[i] < 0 ? node(i) : joined_[static_cast<size_t>(group_of_[i])];
  }

  bool wait_for_inputs(size_t i, const std::vector<bool>& done, std::vector<size_t>& open) const {
    const size_t before = open.size();
    for (const int32_t v : as_placed(i).in) {
      const int32_t p = g_.producer(v);
      if (p >= 0 && !done[static_cast<size_t>(p)]) open.push_back(static_cast<size_t>(p));
    }
    return open.size() > before;
  }

  void place(size_t i, Rewriter& rw, std::vector<bool>& done) const {
    rw.copy(as_placed(i));
    done[i] = true;
    if (group_of_[i] < 0) return;
    const Group& group = groups_[static_cast<size_t>(group_of_[i])];
    const Shape shape(as_placed(i).attrs.as<ops::Rows>().shape);
    std::vector<size_t> across;
    for (const size_t m : group) {
      done[m] = true;
      if (is_across(node(m), shape)) across.push_back(m);
    }
    while (!across.empty()) add_stripes(across, rw);
  }

  // The sums of the first node's stripes, and of those that go over the same dims.
  void add_stripes(std::vector<size_t>& nodes, Rewriter& rw) const {
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
  const std::function<bool(const Signature&)>& serves_;
  bool apart_;
  std::vector<int32_t> group_of_;  // by node; -1: none
  std::vector<Group> groups_;
  std::vector<Node> joined_;                     // by group
  std::map<int32_t, std::set<size_t>> readers_;  // nodes that read a value
  std::set<int32_t> kept_;                       // values that stay values
};

}  // namespace

Graph join_rows(const Graph& g, const std::function<bool(const Signature&)>& serves, bool apart) {
  return RowJoiner(g, serves, apart).run();
}

}  // namespace ebb
