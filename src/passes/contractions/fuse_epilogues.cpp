#include "passes/contractions/fuse_epilogues.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/contraction.h"
#include "ir/expr_inputs.h"
#include "ir/normal_form.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "passes/expression_node.h"
#include "passes/schedule/prepare.h"
#include "passes/simplify.h"
#include "passes/uses.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

using Input = std::function<Value(Rewriter&)>;

Input copy_of(int32_t v) {
  return [v](Rewriter& rw) { return rw.map(v); };
}

// A contraction and the nodes that are part of it.
struct Fused {
  Signature use;
  std::vector<Input> in;
  std::set<size_t> nodes;  // it, and those that it took in
  size_t at = 0;           // the node whose place it takes
  int32_t result = -1, kept = -1;

  Contraction contraction() const { return use.op->contraction(use); }
};

// Operands of the new epilogue, and its expression so far.
struct Growth {
  int32_t z = -1;     // the result that it is of
  int64_t parts = 1;  // of the products' columns
  int64_t inputs = 0;
  std::vector<Scalar> of_z;     // z, or each half of its columns
  std::vector<int32_t> values;  // further operands
  std::set<size_t> between;     // nodes between z and the one that is taken in
};

bool is_expression(const Node& n) { return is_elementwise(n) && n.out.size() == 1; }

bool includes(const std::set<size_t>& all, const std::set<size_t>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

class EpilogueFuser {
 public:
  EpilogueFuser(const Graph& g, const FuseEpilogues& how)
      : g_(g), how_(how), uses_(g), from_weights_(static_cast<size_t>(g.values())) {
    if (how.is_weight) from_weights_ = values_from_weights(g, how.is_weight);
  }

  // Returns `otherwise` if nothing fuses.
  Graph run(const Graph& otherwise) {
    for (const Node& n : g_.nodes()) {
      if (!is_expression(n) || is_copy(n) || from_weights(n.out[0]) ||
          !is_float(g_.type(n.out[0]).dtype))
        continue;
      std::optional<Fused> f = joined(n);
      for (const int32_t z : results_read_by(n))
        if (!f) f = with(n, z);
      if (!f) continue;
      for (const size_t i : f->nodes)
        for (const int32_t v : g_.nodes()[i].out) fused_.erase(v);
      taken_.insert(f->nodes.begin(), f->nodes.end());
      const int32_t result = f->result;
      fused_[result] = std::move(*f);
    }
    return fused_.empty() ? otherwise : rewritten();
  }

 private:
  Expr expr_of(const Node& n) const { return expression_of(g_, n); }
  // Whether a node only casts or repeats.
  bool is_copy(const Node& n) const { return expr_of(n).code().size() == 1; }

  bool from_weights(int32_t v) const { return from_weights_[static_cast<size_t>(v)]; }
  size_t index(int32_t v) const { return static_cast<size_t>(g_.producer(v)); }

  // The contraction that gives a value, unless it has another result already.
  std::optional<Fused> contraction(int32_t v) const {
    if (const auto it = fused_.find(v); it != fused_.end())
      return it->second.kept < 0 ? std::optional(it->second) : std::nullopt;
    const Node* n = producer(g_, v);
    if (n == nullptr || !n->op->contraction || n->out.size() != 1 || from_weights(v) ||
        taken_.contains(index(v)))
      return {};
    Fused f{.use = g_.signature(*n), .nodes = {index(v)}, .at = index(v), .result = v};
    for (const int32_t i : n->in) f.in.push_back(copy_of(i));
    return f;
  }
  bool gives_products(int32_t v) const {
    const Node* n = producer(g_, v);
    return fused_.contains(v) || (n != nullptr && n->op->contraction);
  }

  // ---- what a node adds to an epilogue ---------------------------------------------------------

  // The value that is one half of another's columns, and which half.
  std::optional<std::pair<int32_t, int64_t>> half_of(int32_t v) const {
    const std::optional<SliceView> view = columns_of(g_, v);
    if (!view) return {};
    const int64_t width = view->end - view->begin;
    if (g_.type(view->base).shape[-1] != 2 * width || view->begin % width != 0) return {};
    return std::pair{view->base, view->begin / width};
  }

  // The results of contractions among what a node reads, also through halves of columns and one
  // expression more; later ones first, as their operands exist by then.
  std::vector<int32_t> results_read_by(const Node& n) const {
    std::set<std::pair<int32_t, int32_t>> found;
    const auto add = [&](int32_t v) {
      if (const auto half = half_of(v)) v = half->first;
      const bool is = gives_products(v);
      if (is) found.emplace(-g_.producer(v), v);
      return is;
    };
    for (const int32_t v : n.in)
      if (!add(v) && is_inner(v, n))
        for (const int32_t w : producer(g_, v)->in) add(w);
    std::vector<int32_t> out;
    for (const auto& [later, v] : found) out.push_back(v);
    return out;
  }

  // Whether a value is an expression that `n` may compute itself.
  bool is_inner(int32_t v, const Node& n) const {
    const Node* p = producer(g_, v);
    return p != nullptr && is_expression(*p) && !fused_.contains(v) &&
           g_.type(v) == g_.type(n.out[0]);
  }

  // z or a half of it, as it is read by v.
  std::optional<Scalar> part_of_z(Growth& e, int32_t v) const {
    if (v == e.z && e.of_z.size() == 1) return e.of_z[0];
    const auto half = half_of(v);
    if (!half || half->first != e.z || e.of_z.size() != 2) return {};
    e.between.insert(index(v));
    return e.of_z[static_cast<size_t>(half->second)];
  }

  Scalar operand(Growth& e, int32_t v) const {
    const auto it = std::ranges::find(e.values, v);
    const auto k = it - e.values.begin();
    if (it == e.values.end()) e.values.push_back(v);
    return Scalar::input(e.inputs + k);
  }

  Scalar argument(Growth& e, int32_t v, const Node& n) const {
    if (const auto part = part_of_z(e, v)) return *part;
    if (!is_inner(v, n)) return operand(e, v);
    const Node& p = *producer(g_, v);
    const bool reads =
        std::ranges::any_of(p.in, [&](int32_t w) { return part_of_z(e, w).has_value(); });
    if (!reads) return operand(e, v);
    e.between.insert(index(v));
    std::vector<Scalar> x;
    for (const int32_t w : p.in) {
      const auto part = part_of_z(e, w);
      x.push_back(part ? *part : operand(e, w));
    }
    return expr_of(p).apply(x)[0];
  }

  // The growth of an epilogue before it takes anything in; of halves of the columns of its result.
  std::optional<Growth> begin(const Fused& f, bool halves) const {
    const Contraction c = f.contraction();
    const auto operands = static_cast<int64_t>(f.use.in.size() - c.first_operand());
    const int64_t width = g_.type(f.result).shape[-1];
    if (halves &&
        (c.epilogue.parts > 1 || !c.epilogue.columns.empty() || width % 2 != 0 ||
         std::any_of(f.use.in.begin() + static_cast<std::ptrdiff_t>(c.first_operand()),
                     f.use.in.end(), [&](const Type& t) { return t.shape[-1] != width; })))
      return {};
    Growth e{.z = f.result, .parts = halves ? 2 : c.epilogue.parts};
    if (c.epilogue.parts > 1) {  // its inputs are in parts already
      e.inputs = c.epilogue.expr.inputs();
      e.of_z = {c.epilogue.expr.apply(inputs_as_scalars(c.epilogue.expr))[0]};
      return e;
    }
    e.inputs = (1 + operands) * e.parts;
    for (int64_t p = 0; p < e.parts; ++p) {
      std::vector<Scalar> x;
      for (int64_t k = 0; k <= operands; ++k) x.push_back(Scalar::input(k * e.parts + p));
      Scalar sum = x[0];
      for (size_t k = 1; k < x.size(); ++k) sum = sum + x[k];
      e.of_z.push_back(c.epilogue.is_sum() ? sum : c.epilogue.expr.apply(x)[0]);
    }
    return e;
  }

  // `n` as part of the contraction that gives z.
  std::optional<Fused> with(const Node& n, int32_t z) const {
    const std::optional<Fused> f = contraction(z);
    if (!f) return {};
    for (const bool halves : {false, true}) {
      std::optional<Growth> e = begin(*f, halves);
      if (!e) continue;
      std::vector<Scalar> x;
      for (const int32_t v : n.in) x.push_back(argument(*e, v, n));
      Scalar y = expr_of(n).apply(x)[0];
      if (std::ranges::find(e->values, z) != e->values.end()) continue;
      const int64_t columns = g_.type(z).shape[-1] / (halves ? 2 : 1);
      Shape shape = g_.type(z).shape;
      shape[-1] = columns;
      if (!(g_.type(n.out[0]).shape == shape) || shape.numel() == 0) continue;
      for (const bool in_place : {true, false})
        if (auto grown = grow(*f, *e, n, y, in_place)) return grown;
    }
    return {};
  }

  // ---- whether it pays -------------------------------------------------------------------------

  // The nodes between z and `n` that only `n` needs, and `n`.
  std::set<size_t> unread(const std::set<size_t>& between, const Node& n) const {
    std::set<size_t> gone{index(n.out[0])};
    for (auto i = between.rbegin(); i != between.rend(); ++i) {
      const auto& out = g_.nodes()[*i].out;
      if (std::ranges::all_of(out, [&](int32_t v) { return includes(gone, uses_.readers(v)); }))
        gone.insert(*i);
    }
    return gone;
  }

  // Whether inline_producers() would take the node into its only reader.
  bool goes_into_reader(const Node& n) const {
    const Node* reader = uses_.only_reader(n.out[0]);
    if (reader == nullptr || !uses_.will_fuse(reader, g_.type(n.out[0]).shape)) return false;
    // another contraction may take the sum
    const bool sum =
        is_expression(*reader) && reader->in.size() == 2 && ops::is_sum(expr_of(*reader));
    return !sum || std::ranges::none_of(reader->in, [&](int32_t v) {
      return v != n.out[0] && gives_products(v) && uses_.readers(v).size() == 1;
    });
  }

  // Whether fewer bytes move than if `n` stayed apart.
  bool pays(const Growth& e, const Node& n, bool keeps) const {
    const Type& out = g_.type(n.out[0]);
    const int64_t of_z = g_.type(e.z).bytes();
    int64_t saved = keeps ? of_z : 2 * of_z;
    if (goes_into_reader(n)) saved -= 2 * out.bytes();
    for (const int32_t v : e.values)
      if (!gives_products(v) && !from_weights(v) && g_.type(v).shape == out.shape && merges(v))
        saved -= 2 * g_.type(v).bytes();
    return saved > 0;
  }

  // Whether inline_producers() or elide_copies() would make its producer part of its only reader.
  bool merges(int32_t v) const {
    const Node* p = uses_.single_use_producer(v);
    return uses_.will_fuse(p, g_.type(v).shape) ||
           (p != nullptr && !concatenated(g_, *p, -1).empty());
  }

  // ---- the contraction that does -----------------------------------------------------------

  struct Operand {
    Type type;
    int64_t column = 0;
    Input input;
  };

  // One row for each image may be columns of a wider tensor, past reshapes.
  // In an expression of parts, what is as wide as all of them is read in parts too.
  std::optional<Operand> operand_of(int32_t v, const Shape& result, int64_t parts,
                                    bool in_place) const {
    const Type& t = g_.type(v);
    Shape row = ops::row_for_each_image(result);
    if (!is_float(t.dtype)) return {};
    if (t.shape == result || t.shape == Shape{result[-1]}) return Operand{t, 0, copy_of(v)};
    if (!(t.shape == row)) return {};
    const std::optional<SliceView> view =
        in_place ? columns_of(g_, row_root_of(g_, v)) : std::nullopt;
    const int64_t width = view ? g_.type(view->base).shape[-1] : 0;
    if (!view || (parts > 1 && view->begin == 0 && width == parts * result[-1]))
      return Operand{t, 0, copy_of(v)};
    row[-1] = width;
    if (row.numel() != g_.type(view->base).shape.numel()) return {};
    return Operand{{t.dtype, row}, view->begin, [row, base = view->base](Rewriter& rw) {
                     return ops::reshape(rw.map(base), row);
                   }};
  }

  std::optional<Fused> grow(const Fused& f, const Growth& e, const Node& n, const Scalar& y,
                            bool in_place) const {
    const Contraction c = f.contraction();
    Fused out = f;
    out.result = n.out[0];
    const std::set<size_t> gone = unread(e.between, n);
    const bool keeps = !includes(gone, uses_.readers(e.z));
    std::vector<int64_t> columns = c.epilogue.columns;
    size_t latest = 0;  // behind the operands
    for (const int32_t v : e.values) {
      auto o = operand_of(v, g_.type(n.out[0]).shape, e.parts, in_place);
      if (!o) return {};
      columns.resize(out.use.in.size() - c.first_operand());
      columns.push_back(o->column);
      out.use.in.push_back(o->type);
      out.in.push_back(std::move(o->input));
      latest = std::max(latest, static_cast<size_t>(g_.producer(v) + 1));
    }
    while (!columns.empty() && columns.back() == 0) columns.pop_back();
    std::vector<Scalar> results{y};
    if (keeps) results.insert(results.end(), e.of_z.begin(), e.of_z.end());
    Epilogue epilogue(Expr(e.inputs + std::ssize(e.values), results), e.parts, columns);
    const auto operands = std::span(out.use.in).subspan(c.first_operand());
    if (e.parts == 1 && ops::is_sum(epilogue.expr) &&
        ops::sum_takes(operands, g_.type(n.out[0]).shape[-1]))
      epilogue = {};
    // an expression is of products that are not rounded, and z is kept in the result's dtype
    if (!epilogue.is_sum() && g_.type(e.z).dtype != g_.type(n.out[0]).dtype) return {};
    if (keeps && (latest > f.at || (e.parts > 1) != (e.of_z.size() > 1))) return {};
    if (how_.sums_only && !epilogue.is_sum()) return {};
    if (!takes(out, epilogue, g_.type(n.out[0]).dtype, c.products) || !pays(e, n, keeps)) return {};
    if (!how_.supports(f.use, out.use)) return {};
    out.nodes.insert(gone.begin(), gone.end());
    if (keeps) out.kept = e.z;
    // other nodes may read what it keeps before `n`
    if (!keeps && !e.values.empty()) out.at = index(n.out[0]);
    return out;
  }

  // Gives the contraction another epilogue; false: its op has no such.
  static bool takes(Fused& f, const Epilogue& e, DType dtype, int64_t products) {
    const std::optional<Attrs> attrs = f.contraction().with(f.use, e, dtype, products);
    if (!attrs) return false;
    f.use.attrs = *attrs;
    f.use.out.clear();
    f.use.out = f.use.op->infer(f.use);
    return true;
  }

  // ---- two contractions that are added up ------------------------------------------------------

  std::optional<Fused> joined(const Node& n) const {
    if (n.in.size() != 2 || n.in[0] == n.in[1] || !ops::is_sum(expr_of(n))) return {};
    for (const size_t k : {0u, 1u})
      if (auto f = joined(n, n.in[k], n.in[1 - k])) return f;
    return {};
  }

  // `more`, which has taken in nothing yet, as a further product of the contraction that gives v.
  std::optional<Fused> joined(const Node& n, int32_t v, int32_t more) const {
    const std::optional<Fused> to = sum_for(n, v), m = sum_for(n, more);
    if (!to || !m || fused_.contains(more) || m->in.size() > 3 || !fit(*to, *m)) return {};
    const Node& product = *producer(g_, more);
    if (!from_weights(product.in[1]) && !saves_bytes(product)) return {};
    for (const std::vector<int32_t>& x : {parts_by_column(product), std::vector{product.in[0]}}) {
      Fused out = *to;
      out.use.in.resize(2);
      out.in.resize(2);
      add_products(out, x, product.in[1]);
      if (m->in.size() == 2) {
        out.use.in.insert(out.use.in.end(), to->use.in.begin() + 2, to->use.in.end());
        out.in.insert(out.in.end(), to->in.begin() + 2, to->in.end());
      } else if (!add_biases(out, v, product)) {
        return {};
      }
      if (!takes(out, {}, g_.type(n.out[0]).dtype, 1 + std::ssize(x)) ||
          !how_.supports(to->use, out.use))
        continue;
      out.nodes.insert({index(more), index(n.out[0])});
      out.at = index(n.out[0]);
      out.result = n.out[0];
      return out;
    }
    return {};
  }

  // The contraction that gives the value if that is a sum of one product, `n` alone reads it, and
  // it has the type of the result.
  std::optional<Fused> sum_for(const Node& n, int32_t v) const {
    if (!(g_.type(v) == g_.type(n.out[0])) || uses_.readers(v).size() != 1) return {};
    std::optional<Fused> f = contraction(v);
    if (!f || f->use.in[0].dtype != g_.type(v).dtype) return {};
    const Contraction c = f->contraction();
    return c.products == 1 && c.epilogue.is_sum() && c.with ? f : std::nullopt;
  }

  // Whether the second may be a further product of the first: its weights are stored alike.
  static bool fit(const Fused& to, const Fused& more) {
    const Contraction c = to.contraction(), d = more.contraction();
    return more.use.in[0].dtype == to.use.in[0].dtype && (c.by_columns ? d.by_columns : d.linear);
  }

  // Whether a product reads less than it takes to write its result and read it again. Others gain
  // nothing by waiting for each other, as the gradients of an embedding that all blocks read.
  bool saves_bytes(const Node& product) const {
    const auto bytes = [&](int32_t v) { return g_.type(v).bytes(); };
    return bytes(product.in[0]) + bytes(product.in[1]) < 2 * bytes(product.out[0]);
  }

  // The two tensors whose columns a linear layer with prepared weights reads, if they are no more
  // than that; else all of them as one.
  std::vector<int32_t> parts_by_column(const Node& layer) const {
    const Node* n = producer(g_, layer.in[0]);
    if (n == nullptr || !from_weights(layer.in[1])) return {layer.in[0]};
    const std::vector<int32_t> in = concatenated(g_, *n, -1);
    return in.size() == 2 ? in : std::vector{layer.in[0]};
  }

  void add_products(Fused& f, const std::vector<int32_t>& x, int32_t w) const {
    if (x.size() == 1) {
      for (const int32_t v : {x[0], w}) {
        f.use.in.push_back(g_.type(v));
        f.in.push_back(copy_of(v));
      }
      return;
    }
    int64_t begin = 0;
    for (const int32_t v : x) {
      const int64_t end = begin + g_.type(v).shape[-1];
      f.use.in.push_back(g_.type(v));
      f.use.in.push_back({g_.type(w).dtype, {g_.type(w).shape[0], end - begin}});
      f.in.push_back(copy_of(v));
      f.in.push_back([=](Rewriter& rw) { return ops::slice(rw.map(w), 1, begin, end); });
      begin = end;
    }
  }

  // The sum of both biases, computed once; false: they are not prepared, or no biases.
  bool add_biases(Fused& f, int32_t v, const Node& b) const {
    if (fused_.contains(v)) return false;
    std::vector<int32_t> biases;
    for (const Node* n : {producer(g_, v), &b})
      if (n->in.size() > 2) biases.push_back(n->in[2]);
    if (!std::ranges::all_of(
            biases, [&](int32_t w) { return from_weights(w) && g_.type(w).shape.rank() == 1; }))
      return false;
    f.use.in.push_back({DType::f32, g_.type(biases[0]).shape});
    f.in.push_back([biases](Rewriter& rw) {
      Value sum;
      for (const int32_t v : biases) {
        const Value one = ops::cast(rw.map(v), DType::f32);
        sum = sum ? ops::map({sum, one}, [](auto x) { return x[0] + x[1]; }) : one;
      }
      return sum;
    });
    return true;
  }

  // ---- the graph -------------------------------------------------------------------------------

  Graph rewritten() const {
    std::set<size_t> gone;
    std::map<size_t, const Fused*> at;
    for (const auto& [v, f] : fused_) {
      gone.insert(f.nodes.begin(), f.nodes.end());
      at[f.at] = &f;
    }
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (const auto it = at.find(i); it != at.end())
        add(rw, *it->second);
      else if (!gone.contains(i))
        rw.copy(g_.nodes()[i]);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

  static void add(Rewriter& rw, const Fused& f) {
    const AtScope scope(rw.to(), f.use.at);
    std::vector<Value> in;
    for (const Input& input : f.in) in.push_back(input(rw));
    const std::vector<Value> out = rw.to().add(*f.use.op, f.use.attrs, in);
    rw.set(f.result, out[0]);
    if (f.kept >= 0) rw.set(f.kept, out[1]);
  }

  const Graph& g_;
  const FuseEpilogues& how_;
  const Uses uses_;
  std::vector<bool> from_weights_;  // by value: prepared once
  std::map<int32_t, Fused> fused_;  // by result
  std::set<size_t> taken_;          // nodes that are part of one
};

}  // namespace

Graph fuse_epilogues(const Graph& g, const FuseEpilogues& how) {
  const Graph used = drop_unused_inputs(g);
  return EpilogueFuser(used, how).run(g);
}

}  // namespace ebb
