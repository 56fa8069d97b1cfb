#include "passes/fuse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "passes/made_node.h"

namespace ebb {
namespace {

constexpr size_t max_inputs = 24;
constexpr size_t max_instructions = 160;

// A node under fusion: pointwise and reduce nodes with their expression, other nodes as they are.
struct Item {
  Node node;
  bool fusable = false, reduction = false, live = true;
  Expr expr;
  Shape shape;                // iteration space
  std::vector<DType> dtypes;  // of a pointwise op's results
};

class Fuser {
 public:
  Fuser(const Graph& g, const FuseCosts& costs) : g_(g), costs_(costs) {
    for (const Node& n : g.nodes()) items_.push_back(make_item(n));
    for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
    for (const NamedValue& u : g.updates()) kept_.insert(u.value);
  }

  Graph run() {
    collect_readers();
    for (size_t i = 0; i < items_.size(); ++i) try_inline(i);
    for (size_t i = 0; i < items_.size() && costs_.hoists_row_scalars; ++i) try_spread(i);
    merge_siblings();
    return rebuild();
  }

 private:
  Item make_item(const Node& n) const {
    Item item{n, false, false, true, {}, {}, {}};
    const Signature s = g_.signature(n);
    if (n.op == &ops::def::pointwise()) {
      item.fusable = true;
      item.expr = s.as<ops::Pointwise>().expr;
      item.shape = s.out[0].shape;
      for (const Type& t : s.out) item.dtypes.push_back(t.dtype);
    } else if (n.op == &ops::def::reduce()) {
      item.fusable = item.reduction = true;
      item.expr = s.as<ops::Reduce>().expr;
      item.shape = Shape(s.as<ops::Reduce>().shape);
      for (const Type& t : s.in) item.shape = broadcast(item.shape, t.shape, "fuse");
    }
    if (item.fusable) fold_constants(item);
    return item;
  }

  // Folds constant inputs into the expression.
  void fold_constants(Item& item) const {
    std::vector<Scalar> x;
    std::vector<int32_t> in;
    for (const int32_t v : item.node.in) {
      const std::optional<Scalar> constant = constant_of(v);
      x.push_back(constant.value_or(Scalar::input(static_cast<int64_t>(in.size()))));
      if (!constant) in.push_back(v);
    }
    if (in.empty() || in.size() == x.size()) return;
    item.expr = Expr(static_cast<int64_t>(in.size()), item.expr.apply(x));
    item.node.in = in;
  }

  std::optional<Scalar> constant_of(int32_t v) const {
    const int32_t p = g_.producer(v);
    if (p < 0 || g_.type(v).dtype != DType::f32) return {};
    const Node& n = g_.nodes()[static_cast<size_t>(p)];
    if (n.op->renames) return constant_of(n.in[0]);
    if (n.op != &ops::def::pointwise() || !n.in.empty()) return {};
    const Scalar s = n.attrs.as<ops::Pointwise>().expr.apply(
        {})[static_cast<size_t>(std::find(n.out.begin(), n.out.end(), v) - n.out.begin())];
    return s.is_constant() ? std::optional(s) : std::nullopt;
  }

  void collect_readers() {
    readers_.clear();
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].live) continue;
      for (const int32_t v : items_[i].node.in) readers_[v].insert(i);
    }
  }

  bool is_full(int32_t v, const Shape& shape) const { return g_.type(v).shape == shape; }

  size_t full_inputs(const Item& item) const {
    std::set<int32_t> in;
    for (const int32_t v : item.node.in)
      if (is_full(v, item.shape)) in.insert(v);
    return in.size();
  }

  // The readers of an item's results if it may be inlined into all of them; else none.
  std::vector<size_t> inline_targets(const Item& p, bool spread) const {
    std::set<size_t> all;
    for (const int32_t v : p.node.out) {
      if (kept_.contains(v) || !is_float(g_.type(v).dtype)) return {};
      if (const auto it = readers_.find(v); it != readers_.end())
        all.insert(it->second.begin(), it->second.end());
    }
    for (const size_t r : all) {
      const Item& c = items_[r];
      if (!c.fusable || !(spread ? reads_rows(c, p.shape) : c.shape == p.shape)) return {};
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
    for (const int32_t v : c.node.in)
      if (std::find(p.node.out.begin(), p.node.out.end(), v) == p.node.out.end()) add(v);
    for (const int32_t v : p.node.in) add(v);
    return in;
  }

  // Compares the full-size tensors read and written before and after inlining `p` into `targets`.
  bool pays(const Item& p, const std::vector<size_t>& targets) const {
    size_t before = full_inputs(p) - read_by_reductions(p) + p.node.out.size(), after = 0;
    for (const size_t t : targets) {
      before += full_inputs(items_[t]);
      Item merged = items_[t];
      merged.node.in = merged_inputs(p, items_[t]);
      after += full_inputs(merged);
    }
    if (after > before) return false;
    const double again = p.expr.flops() * static_cast<double>(targets.size() - 1);
    return again <= costs_.flops_per_pass * static_cast<double>(before - after + 1);
  }

  // Inputs of `p` that the row reductions which `p` depends on read already (see fuse_loops).
  size_t read_by_reductions(const Item& p) const {
    if (!costs_.fuses_row_reductions || p.shape.rank() == 0) return 0;
    std::set<int32_t> read, seen;
    for (const int32_t v : p.node.in) collect_reductions(p.shape, v, {read, seen});
    return static_cast<size_t>(std::count_if(read.begin(), read.end(), [&](int32_t v) {
      return std::find(p.node.in.begin(), p.node.in.end(), v) != p.node.in.end();
    }));
  }

  struct Collected {
    std::set<int32_t>&read, &seen;  // seen: visited
  };
  // Collects the full-size inputs of the row reductions that `v` depends on.
  void collect_reductions(const Shape& shape, int32_t v, const Collected& to) const {
    if (!to.seen.insert(v).second) return;
    Shape rows = shape;
    rows[-1] = 1;
    const int32_t producer = g_.producer(v);
    if (producer < 0 || rows == shape || !is_full(v, rows)) return;
    const Item& q = items_[static_cast<size_t>(producer)];
    const bool norm = q.node.op == &ops::def::moments() && is_full(q.node.in[0], shape);
    if (norm || (q.reduction && q.shape == shape)) {
      for (const int32_t x : q.node.in)
        if (is_full(x, shape)) to.read.insert(x);
    } else if (q.fusable && q.live) {
      for (const int32_t x : q.node.in) collect_reductions(shape, x, to);
    }
  }

  void try_inline(size_t index) {
    Item& p = items_[index];
    if (!p.fusable || p.reduction || !p.live) return;
    const std::vector<size_t> targets = inline_targets(p, false);
    if (!targets.empty() && pays(p, targets)) inline_everywhere(index, targets);
  }

  // Inlines a per-row scalar into the nodes that iterate over the rows.
  void try_spread(size_t index) {
    const Item& p = items_[index];
    if (!p.fusable || p.reduction || !p.live) return;
    const std::vector<size_t> targets = inline_targets(p, true);
    if (!targets.empty()) inline_everywhere(index, targets);
  }

  // Whether the item iterates along rows with one value of shape `rows` per row. A reduction over
  // other dims iterates across rows and would recompute the scalar for every element.
  static bool reads_rows(const Item& c, const Shape& rows) {
    constexpr int64_t shortest = 64;
    const int64_t last = c.shape.rank() - 1;
    if (last < 0 || rows.rank() != c.shape.rank() || rows[last] != 1 || c.shape[last] < shortest)
      return false;
    if (c.reduction) {
      const auto& dims = c.node.attrs.as<ops::Reduce>().dims;
      if (std::find(dims.begin(), dims.end(), last) == dims.end()) return false;
    }
    return broadcastable(rows, c.shape);
  }

  void inline_everywhere(size_t index, const std::vector<size_t>& targets) {
    Item& p = items_[index];
    for (const size_t t : targets) inline_into(p, items_[t]);
    for (const int32_t v : p.node.in) {
      readers_[v].erase(index);
      readers_[v].insert(targets.begin(), targets.end());
    }
    for (const int32_t v : p.node.out) readers_.erase(v);
    p.live = false;
  }

  static std::vector<Scalar> inputs_of(const std::vector<int32_t>& from,
                                       const std::vector<int32_t>& all) {
    std::vector<Scalar> x;
    for (const int32_t v : from) {
      const auto at = std::find(all.begin(), all.end(), v);
      x.push_back(at == all.end() ? Scalar(0.0) : Scalar::input(at - all.begin()));
    }
    return x;
  }

  void inline_into(const Item& p, Item& c) const {
    const std::vector<int32_t> in = merged_inputs(p, c);
    const std::vector<Scalar> made = p.expr.apply(inputs_of(p.node.in, in));
    std::vector<Scalar> x = inputs_of(c.node.in, in);
    for (size_t k = 0; k < x.size(); ++k) {
      const auto at = std::find(p.node.out.begin(), p.node.out.end(), c.node.in[k]);
      if (at != p.node.out.end()) x[k] = made[static_cast<size_t>(at - p.node.out.begin())];
    }
    c.expr = Expr(static_cast<int64_t>(in.size()), c.expr.apply(x));
    c.node.in = in;
  }

  // ---- siblings

  bool mergeable(const Item& a, const Item& b) const {
    if (!a.fusable || !b.fusable || !a.live || !b.live || a.reduction != b.reduction) return false;
    if (!(a.shape == b.shape) || a.shape.numel() < 2) return false;
    if (a.expr.code().size() + b.expr.code().size() > max_instructions) return false;
    if (a.reduction) {
      const auto& x = a.node.attrs.as<ops::Reduce>();
      const auto& y = b.node.attrs.as<ops::Reduce>();
      if (x.dims != y.dims || x.kind != y.kind || x.scale != y.scale) return false;
    }
    const auto shared = [&](int32_t v) {
      return is_full(v, a.shape) &&
             std::find(b.node.in.begin(), b.node.in.end(), v) != b.node.in.end();
    };
    return std::any_of(a.node.in.begin(), a.node.in.end(), shared);
  }

  // Merges a later item into an earlier one that reads a tensor of the same size, if the later
  // one's inputs exist by then.
  void merge_siblings() {
    made_at_.assign(static_cast<size_t>(g_.values()), -1);
    std::map<int32_t, std::vector<size_t>> by_input;
    for (size_t i = 0; i < items_.size(); ++i) {
      Item& b = items_[i];
      if (!b.live) continue;
      const size_t at = b.fusable ? find_sibling(b, by_input) : items_.size();
      if (at < items_.size()) {
        merge(items_[at], b);
        for (const int32_t v : b.node.out)
          made_at_[static_cast<size_t>(v)] = static_cast<int32_t>(at);
        for (const int32_t v : items_[at].node.in) by_input[v].push_back(at);
        continue;
      }
      for (const int32_t v : b.node.out) made_at_[static_cast<size_t>(v)] = static_cast<int32_t>(i);
      if (b.fusable)
        for (const int32_t v : b.node.in) by_input[v].push_back(i);
    }
  }

  size_t find_sibling(const Item& b, const std::map<int32_t, std::vector<size_t>>& by_input) const {
    int32_t ready = -1;  // the last node that b depends on
    for (const int32_t v : b.node.in) ready = std::max(ready, made_at_[static_cast<size_t>(v)]);
    for (const int32_t v : b.node.in) {
      const auto it = by_input.find(v);
      if (it == by_input.end()) continue;
      for (const size_t a : it->second)
        if (static_cast<int32_t>(a) > ready && mergeable(items_[a], b) &&
            united(items_[a].node.in, b.node.in).size() <= max_inputs)
          return a;
    }
    return items_.size();
  }

  static std::vector<int32_t> united(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    for (const int32_t v : b)
      if (std::find(a.begin(), a.end(), v) == a.end()) a.push_back(v);
    return a;
  }

  static void merge(Item& a, Item& b) {
    const std::vector<int32_t> in = united(a.node.in, b.node.in);
    std::vector<Scalar> results = a.expr.apply(inputs_of(a.node.in, in));
    for (const Scalar& s : b.expr.apply(inputs_of(b.node.in, in))) results.push_back(s);
    a.expr = Expr(static_cast<int64_t>(in.size()), results);
    a.node.in = in;
    a.node.out.insert(a.node.out.end(), b.node.out.begin(), b.node.out.end());
    a.dtypes.insert(a.dtypes.end(), b.dtypes.begin(), b.dtypes.end());
    b.live = false;
  }

  // ---- the new graph

  static void drop_unused_inputs(Item& item) {
    std::vector<int32_t> in;
    std::vector<Scalar> x;
    for (size_t k = 0; k < item.node.in.size(); ++k) {
      const bool used = item.expr.uses(static_cast<int64_t>(k));
      x.push_back(used ? Scalar::input(static_cast<int64_t>(in.size())) : Scalar(0.0));
      if (used) in.push_back(item.node.in[k]);
    }
    item.expr = Expr(static_cast<int64_t>(in.size()), item.expr.apply(x));
    item.node.in = in;
  }

  static Attrs attributes(const Item& item) {
    if (item.reduction) {
      ops::Reduce r = item.node.attrs.as<ops::Reduce>();
      r.expr = item.expr;
      r.shape = item.shape.sizes();
      return r;
    }
    std::string dtypes;
    for (const DType d : item.dtypes) dtypes += str(dtypes.empty() ? "" : ",", d);
    return ops::Pointwise{item.expr, item.shape.sizes(), dtypes};
  }

  Graph rebuild() {
    Rewriter rw(g_);
    rw.copy_sources();
    for (Item& item : items_) {
      if (!item.live) continue;
      if (item.fusable) {
        drop_unused_inputs(item);
        item.node.attrs = attributes(item);
        add_made(rw, item.node);
      } else {
        rw.copy(item.node);
      }
    }
    rw.copy_ends();
    return rw.take();
  }

  const Graph& g_;
  FuseCosts costs_;
  std::vector<Item> items_;
  std::set<int32_t> kept_;                       // outputs and updates
  std::map<int32_t, std::set<size_t>> readers_;  // items that read a value
  std::vector<int32_t> made_at_;                 // producing item; -1: a source
};

}  // namespace

Graph fuse(const Graph& g, const FuseCosts& costs) { return Fuser(g, costs).run(); }

}  // namespace ebb
