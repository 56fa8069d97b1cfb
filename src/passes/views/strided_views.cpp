#include "passes/views/strided_views.h"

#include <algorithm>

#include "ir/strided_view.h"

namespace ebb {
namespace {

// A value as a view of another one.
struct Found {
  int32_t base = -1;
  StridedView view;
};

// A node that reads and writes through views, as it is to be.
struct Use {
  UseViews views;
  std::vector<int32_t> in, out;
};

class StridedViewer {
 public:
  StridedViewer(ViewedGraph& v, const Supports& supports)
      : v_(v), g_(v.graph()), supports_(supports) {
    for (size_t i = 0; i < v.size(); ++i) {
      if (v.node(i).op->viewed != nullptr) viewing_.push_back(i);
      for (const int32_t in : v.node(i).in) readers_[in].insert(i);
    }
  }
  void run() {
    if (viewing_.empty()) return;
    for (size_t i = 0; i < v_.size(); ++i)
      if (!moves(v_.node(i)) && v_.node(i).op->viewed == nullptr)
        for (const int32_t in : v_.node(i).in) need(in);
    for (const NamedValue& o : g_.outputs()) need(o.value);
    for (const NamedValue& u : g_.updates()) need(u.value);
    for (size_t before = SIZE_MAX; before != copied_.size();) {
      before = copied_.size();
      for (const size_t i : viewing_) read_views(i);
    }
    for (const size_t i : viewing_)
      if (!write_one_tensor(i))
        for (size_t k = 0; k < v_.node(i).out.size(); ++k) write_permuted(i, k);
    commit();
  }

 private:
  // ---- operands --------------------------------------------------------------------------------

  // Whether a node gives elements of its operand and nothing else: views can look through it.
  bool moves(const Node& n) const {
    if (n.op->renames || order_of(n)) return true;
    return n.op->copy != nullptr &&
           std::ranges::all_of(n.out, [&](int32_t v) { return is_slice(v); });
  }
  std::optional<std::vector<int64_t>> order_of(const Node& n) const {
    if (n.op->permutation == nullptr) return {};
    return n.op->permutation(g_.signature(n));
  }
  bool is_slice(int32_t v) const {
    const std::optional<SliceView> s = slice_of(g_, v);
    return s && !is_range(g_, *s);
  }
  // Something reads `v` itself: the copies on the way to it are made.
  void need(int32_t v) {
    const Node* const n = producer(g_, v);
    if (n == nullptr || !moves(*n) || !copied_.insert(v).second) return;
    need(n->in[0]);
  }
  Found find(int32_t v) const {
    const Node* const n = producer(g_, v);
    const Found whole{v, dense_view(v_.shape(v))};
    if (n == nullptr || !moves(*n) || (!n->op->renames && copied_.contains(v))) return whole;
    Found f = find(n->in[0]);
    if (n->op->renames) {
      const auto renamed = reshaped(f.view, v_.shape(v));
      return renamed ? Found{f.base, *renamed} : whole;
    }
    if (const auto order = order_of(*n)) return {f.base, permuted(f.view, *order)};
    const SliceView s = *slice_of(g_, v);
    return {f.base, sliced(std::move(f.view), s.dim, s.begin, s.end)};
  }
  static bool is_whole(const Found& f, int32_t v) {
    return f.base == v || f.view == dense_view(f.view.shape);
  }

  Use& use_of(size_t i) {
    const auto [at, added] = uses_.try_emplace(i);
    if (added) at->second = {{}, v_.node(i).in, v_.node(i).out};
    return at->second;
  }
  std::optional<Attrs> attrs_of(size_t i, const Use& u) const {
    const Node& n = v_.node(i);
    return n.op->viewed(g_.signature(n), u.views);
  }
  bool supported(size_t i, const Use& u) const {
    const std::optional<Attrs> attrs = attrs_of(i, u);
    if (!attrs) return false;
    Signature s{v_.node(i).op, *attrs, {}, {}, v_.node(i).at};
    for (const int32_t in : u.in) s.in.push_back(g_.type(in));
    s.out = s.op->infer(s);
    return supports_(s);
  }

  // Reads what node `i` can read in place; what it cannot must be made.
  void read_views(size_t i) {
    const Node& n = v_.node(i);
    Use u{{}, n.in, n.out};
    for (size_t k = 0; k < n.in.size(); ++k) {
      const Found f = find(n.in[k]);
      if (is_whole(f, n.in[k])) {
        need(n.in[k]);
        continue;
      }
      Use more = u;
      more.in[k] = f.base;
      more.views.in.emplace(k, f.view);
      if (supported(i, more))
        u = std::move(more);
      else
        need(n.in[k]);
    }
    uses_.insert_or_assign(i, std::move(u));
  }

  // ---- results ---------------------------------------------------------------------------------

  // The nodes that read a value, maybe under another shape, and that shape's value.
  void add_readers(int32_t v, std::vector<std::pair<size_t, int32_t>>& all) const {
    const auto at = readers_.find(v);
    if (at == readers_.end()) return;
    for (const size_t i : at->second)
      if (v_.node(i).op->renames)
        add_readers(v_.node(i).out[0], all);
      else
        all.emplace_back(i, v);
  }
  bool is_kept(int32_t v) const {
    if (v_.is_kept(v)) return true;
    const auto at = readers_.find(v);
    return at != readers_.end() && std::ranges::any_of(at->second, [&](size_t i) {
             return v_.node(i).op->renames && is_kept(v_.node(i).out[0]);
           });
  }

  // All results of a node as the ranges of the one tensor that they are concatenated to.
  bool write_one_tensor(size_t i) {
    const std::vector<int32_t>& results = v_.node(i).out;
    std::vector<std::pair<size_t, int32_t>> readers;
    for (const int32_t r : results) {
      if (is_kept(r)) return false;
      add_readers(r, readers);
    }
    if (results.size() < 2 || readers.size() != results.size()) return false;
    const size_t concat = readers[0].first;
    for (const auto& [reader, v] : readers)
      if (reader != concat) return false;
    const Node& c = v_.node(concat);
    Use u = use_of(i);
    for (int64_t dim = 0; dim < v_.shape(c.out[0]).rank(); ++dim) {
      const std::vector<int32_t> parts = concatenated(g_, c, dim);
      if (parts.size() != results.size()) continue;
      int64_t begin = 0;
      for (const int32_t part : parts) {
        const auto r = std::ranges::find(results, root_of(g_, part));
        const int64_t end = begin + v_.shape(part)[dim];
        if (r == results.end()) return false;
        const auto view =
            reshaped(sliced(dense_view(v_.shape(c.out[0])), dim, begin, end), v_.shape(*r));
        if (!view) return false;
        u.views.out.emplace(static_cast<size_t>(r - results.begin()), *view);
        begin = end;
      }
      u.views.one_tensor = true;
      u.views.tensors.emplace(0, v_.shape(c.out[0]));
      u.out = {c.out[0]};
      if (u.views.out.size() < results.size() || !supported(i, u)) return false;
      uses_.insert_or_assign(i, std::move(u));
      return true;
    }
    return false;
  }

  // `r` as a view of `moved`, which has its elements in another order; none if dims are divided.
  std::optional<StridedView> in_order_of(int32_t r, const StridedView& moved) const {
    StridedView view = dense_view(v_.shape(r));
    const std::vector<int64_t> steps = moved.shape.strides();
    for (size_t d = 0; d < view.strides.size(); ++d) {
      const int64_t size = view.shape[static_cast<int64_t>(d)];
      if (size == 1) continue;
      size_t j = 0;
      while (j < steps.size() &&
             (moved.strides[j] != view.strides[d] || moved.shape[static_cast<int64_t>(j)] != size))
        ++j;
      if (j == steps.size()) return {};
      view.strides[d] = steps[j];
    }
    return view;
  }

  // Result `k` of a node as the one permutation of it that is made.
  void write_permuted(size_t i, size_t k) {
    const int32_t r = v_.node(i).out[k];
    if (is_kept(r) || v_.shape(r).numel() == 0) return;
    std::vector<std::pair<size_t, int32_t>> readers;
    add_readers(r, readers);
    const auto permutes = [&](const auto& of) { return order_of(v_.node(of.first)).has_value(); };
    if (std::ranges::count_if(readers, permutes) != 1) return;
    const auto [permutation, from] = *std::ranges::find_if(readers, permutes);
    const Node& p = v_.node(permutation);
    const auto whole = in_order_of(r, permuted(dense_view(v_.shape(from)), *order_of(p)));
    if (!whole || !copied_.contains(p.out[0])) return;
    std::map<size_t, Use> changed{{i, use_of(i)}};
    changed.at(i).views.out.emplace(k, *whole);
    changed.at(i).views.tensors.emplace(k, v_.shape(p.out[0]));
    changed.at(i).out[k] = p.out[0];
    for (const auto& [reader, v] : readers) {
      if (reader == permutation) continue;
      const auto view = reshaped(*whole, v_.shape(v));
      if (!view || v_.node(reader).op->viewed == nullptr) return;
      Use& u = changed.try_emplace(reader, use_of(reader)).first->second;
      for (size_t o = 0; o < u.in.size(); ++o)
        if (u.in[o] == v) u.in[o] = p.out[0], u.views.in.insert_or_assign(o, *view);
    }
    for (const auto& [node, u] : changed)
      if (!supported(node, u)) return;
    for (auto& [node, u] : changed) uses_.insert_or_assign(node, std::move(u));
    elided_.push_back(permutation);
  }

  void commit() {
    for (auto& [i, u] : uses_) {
      if (u.views.in.empty() && u.views.out.empty()) continue;
      Node n = v_.node(i);
      n.attrs = *attrs_of(i, u);
      if (u.views.one_tensor) elided_.push_back(static_cast<size_t>(g_.producer(u.out[0])));
      n.in = std::move(u.in), n.out = std::move(u.out);
      v_.replace(i, std::move(n));
    }
    for (const size_t i : elided_) v_.elide(i);
    v_.elide_unread();
  }

  ViewedGraph& v_;
  const Graph& g_;
  const Supports& supports_;
  std::vector<size_t> viewing_;                  // nodes of ops that have views
  std::map<int32_t, std::set<size_t>> readers_;  // by value
  std::set<int32_t> copied_;                     // values that are made
  std::map<size_t, Use> uses_;                   // of nodes that have views
  std::vector<size_t> elided_;                   // permutations and concatenations of results
};

}  // namespace

void view_strided(ViewedGraph& v, const Supports& supports) { StridedViewer(v, supports).run(); }

}  // namespace ebb
