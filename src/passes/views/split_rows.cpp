#include "passes/views/hoist_views.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/loop_form.h"
#include "ops/prim/reshape/op.h"
#include "passes/expression_node.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

// Whether `split` is `whole` with its last dim as two, none of size 1.
bool splits(const Shape& whole, const Shape& split) {
  if (split.rank() != whole.rank() + 1 || split[-1] < 2 || split[-2] < 2) return false;
  for (int64_t d = 0; d + 1 < whole.rank(); ++d)
    if (whole[d] != split[d]) return false;
  return split[-1] * split[-2] == whole[-1];
}

// What is computed along some rows: elements, a value for each row, reductions of them.
struct RowWork {
  Shape whole, split;
  std::set<size_t> nodes = {};
  bool reduces = false, stays = false;  // stays: an op with rows of its own is part of it

  Shape scalars() const {
    Shape s = whole;
    s[-1] = 1;
    return s;
  }
  bool has(const Shape& s) const { return s == whole || s == scalars(); }
  // A shape that broadcasts to `whole`.
  Shape split_of(const Shape& s) const {
    if (s.rank() == 0) return s;
    std::vector<int64_t> sizes(s.sizes().begin(), s.sizes().end() - 1);
    const bool one = s[-1] == 1;
    sizes.insert(sizes.end(), {one ? 1 : split[-2], one ? 1 : split[-1]});
    return Shape(sizes);
  }
};

class RowFinder {
 public:
  explicit RowFinder(const Graph& g) : g_(g), readers_(static_cast<size_t>(g.values())) {
    for (size_t i = 0; i < g.nodes().size(); ++i) {
      expressions_.push_back(expression_node_of(g, g.nodes()[i]));
      for (const int32_t v : g.nodes()[i].in) readers_[static_cast<size_t>(v)].push_back(i);
    }
  }

  std::vector<RowWork> run() {
    for (const Node& n : g_.nodes()) {
      if (!n.op->renames) continue;
      const Shape &from = g_.type(n.in[0]).shape, &to = g_.type(n.out[0]).shape;
      if (splits(from, to) && is_computed(n.in[0], from) && is_read(n.out[0], to))
        add({.whole = from, .split = to}, n.in[0]);
      if (splits(to, from) && is_computed(n.in[0], from) && is_read(n.out[0], to))
        add({.whole = to, .split = from}, n.out[0]);
    }
    return std::move(found_);
  }
  const std::vector<std::optional<ExpressionNode>>& expressions() const { return expressions_; }

 private:
  const std::vector<size_t>& readers(int32_t v) const { return readers_[static_cast<size_t>(v)]; }
  bool works_on(size_t i, const Shape& space) const {
    return expressions_[i] && expressions_[i]->space == space;
  }
  bool is_computed(int32_t v, const Shape& space) const {
    const int32_t p = g_.producer(v);
    return p >= 0 && works_on(static_cast<size_t>(p), space);
  }
  // By expressions, or copies such as the swap of a rotation.
  bool is_read(int32_t v, const Shape& space) const {
    return std::ranges::any_of(readers(v), [&](size_t i) {
      const Node& n = g_.nodes()[i];
      return works_on(i, space) || n.op->copy != nullptr ||
             (n.op->renames && is_read(n.out[0], g_.type(n.out[0]).shape));
    });
  }

  void add(RowWork work, int32_t value) {
    std::vector<int32_t> open = {value};
    std::set<int32_t> seen = {value};
    const auto consider = [&](size_t i) {
      if (seen_.contains(i) || !joins(work, i)) return;
      seen_.insert(i);
      work.nodes.insert(i);
      for (const auto* values : {&g_.nodes()[i].in, &g_.nodes()[i].out})
        for (const int32_t v : *values)
          if (work.has(g_.type(v).shape) && seen.insert(v).second) open.push_back(v);
    };
    while (!open.empty()) {
      const int32_t v = open.back();
      open.pop_back();
      if (g_.producer(v) >= 0) consider(static_cast<size_t>(g_.producer(v)));
      for (const size_t r : readers(v)) consider(r);
    }
    if (work.reduces && !work.stays) found_.push_back(std::move(work));
  }

  // Whether a node that reads or writes a value of the rows is part of their work.
  bool joins(RowWork& work, size_t i) const {
    const Node& n = g_.nodes()[i];
    const std::optional<ExpressionNode>& e = expressions_[i];
    if (!e) {
      const auto form = n.op->loop ? n.op->loop(g_.signature(n)) : std::nullopt;
      work.stays |= form && !form->dims.empty() && form->space == work.whole;
      return false;
    }
    if (!work.has(e->space)) return false;
    work.reduces |= e->space == work.whole && e->reduction &&
                    e->reduction->dims == std::vector{work.whole.rank() - 1};
    return true;
  }

  const Graph& g_;
  std::vector<std::optional<ExpressionNode>> expressions_;  // by node
  std::vector<std::vector<size_t>> readers_;                // nodes, by value
  std::set<size_t> seen_;
  std::vector<RowWork> found_;
};

class RowSplitter {
 public:
  explicit RowSplitter(const Graph& g) : g_(g), finder_(g), rw_(g) {}

  Graph run() {
    const std::vector<RowWork> found = finder_.run();
    if (found.empty()) return g_;
    std::map<size_t, const RowWork*> work;
    for (const RowWork& w : found)
      for (const size_t i : w.nodes) work[i] = &w;
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (const auto at = work.find(i); at != work.end())
        split(i, *at->second);
      else if (n.op->renames)
        rw_.set(n.out[0], under(n.in[0], g_.type(n.out[0]).shape));
      else
        rw_.copy(n);
    }
    rw_.copy_ends();
    return dead_code(rw_.take());
  }

 private:
  // A value under another shape: one value for each shape, so that those who read it share it.
  Value under(int32_t v, const Shape& shape) {
    const int32_t root = root_of(g_, v);
    Value& known = known_[root].emplace(shape.sizes(), Value{}).first->second;
    if (!known) known = ops::reshape(rw_.map(root), shape);
    return known;
  }

  void split(size_t i, const RowWork& work) {
    ExpressionNode e = *finder_.expressions()[i];
    const AtScope scope(rw_.to(), e.at);
    std::vector<Value> in;
    for (const int32_t v : e.in) in.push_back(under(v, work.split_of(g_.type(v).shape)));
    const int64_t last = e.space.rank() - 1;
    if (e.reduction && std::ranges::count(e.reduction->dims, last) != 0)
      e.reduction->dims.push_back(last + 1);
    e.space = work.split_of(e.space);
    const Node made = e.node();
    const std::vector<Value> out = rw_.to().add(*made.op, made.attrs, in);
    for (size_t k = 0; k < out.size(); ++k) {
      const Shape whole = g_.type(e.out[k]).shape;
      const Value flat = ops::reshape(out[k], whole);
      rw_.set(e.out[k], flat);
      known_[e.out[k]] = {{whole.sizes(), flat}, {out[k].shape().sizes(), out[k]}};
    }
  }

  const Graph& g_;
  RowFinder finder_;
  Rewriter rw_;
  std::map<int32_t, std::map<std::vector<int64_t>, Value>> known_;  // by root, by shape
};

}  // namespace

Graph split_rows(const Graph& g) { return RowSplitter(g).run(); }

}  // namespace ebb
