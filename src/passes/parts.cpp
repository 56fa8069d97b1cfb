#include "passes/parts.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/pointwise_parts/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb {
namespace {

class PartFolder {
 public:
  PartFolder(const Graph& g, const std::function<bool(const Signature&)>& serves)
      : g_(g), serves_(serves) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      for (const int32_t v : g.nodes()[i].in) readers_[v].insert(i);
    for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
    for (const NamedValue& u : g.updates()) kept_.insert(u.value);
  }

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (n.op == &ops::def::pointwise()) cut(i);
      if (n.op == &ops::def::concat()) join(n);
    }
    return folded_.empty() ? g_ : rebuild();
  }

 private:
  using Folded = std::map<size_t, ops::Parts>;  // by node

  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }
  const std::set<size_t>& readers(int32_t v) const {
    static const std::set<size_t> none;
    const auto at = readers_.find(v);
    return at == readers_.end() ? none : at->second;
  }

  // ---- cutting ---------------------------------------------------------------------------------

  // The slices that are all that is read of `v`, in order; none if they do not tile its last dim.
  std::vector<size_t> tiles(int32_t v) const {
    std::vector<size_t> slices(readers(v).begin(), readers(v).end());
    if (kept_.contains(v) || slices.size() < 2) return {};
    const auto attrs = [&](size_t i) { return node(i).attrs.as<ops::Slice>(); };
    for (const size_t i : slices)
      if (node(i).op != &ops::def::slice() || attrs(i).dim != shape(v).rank() - 1) return {};
    std::ranges::sort(slices, {}, [&](size_t i) { return attrs(i).begin; });
    int64_t end = 0;
    for (const size_t i : slices) {
      if (attrs(i).begin != end || attrs(i).end == end) return {};
      end = attrs(i).end;
    }
    return end == shape(v)[-1] ? slices : std::vector<size_t>{};
  }

  // The results of formula `i` that are read in parts, all alike.
  void cut(size_t i) {
    const auto before = folded_.find(i);
    ops::Parts parts = before == folded_.end() ? ops::Parts{} : before->second;
    for (size_t k = 0; k < node(i).out.size(); ++k) {
      std::vector<int64_t> widths;
      for (const size_t s : tiles(node(i).out[k])) widths.push_back(shape(node(s).out[0])[-1]);
      if (widths.empty() || (!parts.widths.empty() && parts.widths != widths)) continue;
      parts.widths = widths;
      parts.cut.push_back(static_cast<int64_t>(k));
    }
    if (!parts.cut.empty() && serves_(folded_signature(i, parts))) folded_[i] = parts;
  }

  // ---- joining ---------------------------------------------------------------------------------

  // All readers of a concatenation take its parts, or none does.
  void join(const Node& concat) {
    const int32_t whole = concat.out[0];
    if (concat.attrs.as<ops::Concat>().dim != shape(whole).rank() - 1 || kept_.contains(whole) ||
        readers(whole).empty())
      return;
    std::vector<int64_t> widths;
    for (const int32_t v : concat.in) widths.push_back(shape(v)[-1]);
    if (widths.size() < 2 || std::ranges::count(widths, 0) > 0) return;
    Folded more;
    for (const size_t r : readers(whole)) {
      const Node& n = node(r);
      if (n.op != &ops::def::pointwise() || !(shape(n.out[0]) == shape(whole))) return;
      const auto before = folded_.find(r);
      ops::Parts parts = before == folded_.end() ? ops::Parts{widths, {}, {}} : before->second;
      if (parts.widths != widths) return;
      for (size_t k = 0; k < n.in.size(); ++k)
        if (n.in[k] == whole) parts.joined.push_back(static_cast<int64_t>(k));
      std::ranges::sort(parts.joined);
      if (!serves_(folded_signature(r, parts))) return;
      more[r] = parts;
    }
    for (const auto& [r, parts] : more) folded_[r] = parts;
  }

  // ---- the new nodes
  // -----------------------------------------------------------------------------

  static Attrs attributes(const Signature& s, const ops::Parts& parts) {
    const auto& a = s.as<ops::Pointwise>();
    std::string dtypes;
    for (const Type& t : s.out) dtypes += str(dtypes.empty() ? "" : ",", t.dtype);
    return ops::PointwiseParts{a.expr, s.out[0].shape.sizes(), dtypes, parts};
  }

  std::vector<int32_t> inputs(size_t i, const ops::Parts& parts) const {
    std::vector<int32_t> in;
    for (size_t k = 0; k < node(i).in.size(); ++k) {
      const int32_t v = node(i).in[k];
      if (!parts.joins(k)) {
        in.push_back(v);
        continue;
      }
      const Node& concat = node(static_cast<size_t>(g_.producer(v)));
      in.insert(in.end(), concat.in.begin(), concat.in.end());
    }
    return in;
  }

  Signature folded_signature(size_t i, const ops::Parts& parts) const {
    Signature s = g_.signature(node(i));
    s.attrs = attributes(s, parts);
    s.op = &ops::def::pointwise_parts();
    s.in.clear();
    for (const int32_t v : inputs(i, parts)) s.in.push_back(g_.type(v));
    s.out = s.op->infer(s);
    return s;
  }

  void place(size_t i, const ops::Parts& parts, Rewriter& rw) const {
    const AtScope scope(rw.to(), node(i).at);
    const auto out = rw.to().add(ops::def::pointwise_parts(), folded_signature(i, parts).attrs,
                                 rw.map(inputs(i, parts)));
    size_t at = 0;
    for (size_t k = 0; k < node(i).out.size(); ++k) {
      if (!parts.cuts(k)) {
        rw.set(node(i).out[k], out[at++]);
        continue;
      }
      for (const size_t s : tiles(node(i).out[k])) rw.set(node(s).out[0], out[at++]);
    }
  }

  Graph rebuild() const {
    std::set<int32_t> gone;  // values that are never made
    for (const auto& [i, parts] : folded_) {
      for (const int64_t k : parts.cut) gone.insert(node(i).out[static_cast<size_t>(k)]);
      for (const int64_t k : parts.joined) gone.insert(node(i).in[static_cast<size_t>(k)]);
    }
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = node(i);
      const auto at = folded_.find(i);
      if (at != folded_.end())
        place(i, at->second, rw);
      else if (!(n.op == &ops::def::slice() && gone.contains(n.in[0])) &&
               !(n.op == &ops::def::concat() && gone.contains(n.out[0])))
        rw.copy(n);
    }
    rw.copy_ends();
    return rw.take();
  }

  const Graph& g_;
  const std::function<bool(const Signature&)>& serves_;
  std::map<int32_t, std::set<size_t>> readers_;  // nodes that read a value
  std::set<int32_t> kept_;                       // values that stay values
  Folded folded_;
};

}  // namespace

Graph fold_parts(const Graph& g, const std::function<bool(const Signature&)>& serves) {
  return PartFolder(g, serves).run();
}

}  // namespace ebb
