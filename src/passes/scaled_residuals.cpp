#include "passes/scaled_residuals.h"

#include <map>
#include <optional>
#include <set>

#include "ops/matmul_scaled/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/simplify.h"
#include "passes/slices.h"
#include "passes/uses.h"

namespace ebb {
namespace {

// A sum that becomes a matmul_scaled.
struct Scaled {
  size_t matmul = 0, product = 0;  // nodes that it replaces, beside the sum
  int32_t residual = -1, scale = -1;
  Signature with;
};

class ScaledFuser {
 public:
  ScaledFuser(const Graph& g,
              const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g), supports_(supports), uses_(g) {}

  Graph run(const Graph& otherwise) {
    std::set<size_t> gone;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::optional<Scaled> s = scaled(g_.nodes()[i]);
      if (!s) continue;
      gone.insert({s->matmul, s->product});
      fused_[i] = *s;
    }
    if (fused_.empty()) return otherwise;
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const auto f = fused_.find(i);
      if (f != fused_.end())
        add(rw, g_.nodes()[i], f->second);
      else if (!gone.contains(i))
        rw.copy(g_.nodes()[i]);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  // An expression of two different inputs that has this text.
  static bool is(const Node& n, const std::string& text) {
    return n.op == &ops::def::pointwise() && n.in.size() == 2 && n.in[0] != n.in[1] &&
           n.attrs.as<ops::Pointwise>().expr.text() == text;
  }
  static std::string text_of(const Scalar& s) { return Expr(2, {&s, 1}).text(); }

  std::optional<Scaled> scaled(const Node& n) const {
    static const std::string sum = text_of(Scalar::input(0) + Scalar::input(1));
    static const std::string product = text_of(Scalar::input(0) * Scalar::input(1));
    if (!is(n, sum)) return {};
    for (const size_t k : {1u, 0u}) {
      const Node* p = uses_.single_use_producer(n.in[k]);
      if (p == nullptr || !is(*p, product)) continue;
      for (const size_t z : {1u, 0u})
        if (auto s = fuse(n, n.in[1 - k], *p, z)) return s;
    }
    return {};
  }

  // The sum `n` of `residual` and `product`, whose factor `z` is the matmul.
  std::optional<Scaled> fuse(const Node& n, int32_t residual, const Node& product, size_t z) const {
    const Node* m = uses_.single_use_producer(product.in[z]);
    if (m == nullptr || m->op != &ops::def::matmul() || m->out.size() != 1) return {};
    const Signature plain = g_.signature(*m);
    const auto& a = plain.as<ops::Matmul>();
    const Type& type = g_.type(n.out[0]);
    if (a.trans_a || !a.trans_b || ops::epilogue_of(plain).residual) return {};
    if (!(plain.out[0] == type) || !(g_.type(residual) == type) || type.shape.rank() < 3) return {};
    Scaled s{.matmul = index(m->out[0]), .product = index(product.out[0]), .residual = residual};
    ops::MatmulScaled attrs{.bias = plain.in.size() > 2};
    const int32_t row = product.in[1 - z];
    Type scale = g_.type(row);
    Shape one = type.shape;
    for (int64_t d = 1; d + 1 < one.rank(); ++d) one[d] = 1;
    if (!(scale == Type{type.dtype, one})) return {};
    const int32_t flat = before_reshapes(row);
    const std::optional<SliceView> view = slice_view_of(g_, flat);
    s.scale = view ? view->base : row;
    if (view) {
      attrs.column = view->begin;
      scale.shape[-1] = g_.type(view->base).shape[-1];
      if (scale.shape.numel() != g_.type(view->base).shape.numel()) return {};
    }
    s.with = {&ops::def::matmul_scaled(), attrs, plain.in, {type}, n.at};
    s.with.in.push_back(type);
    s.with.in.push_back(scale);
    if (!supports_(plain, s.with)) return {};
    return s;
  }

  size_t index(int32_t v) const { return static_cast<size_t>(g_.producer(v)); }

  // The value that `v` is with other leading dims.
  int32_t before_reshapes(int32_t v) const {
    while (g_.producer(v) >= 0) {
      const Node& n = g_.nodes()[index(v)];
      if (n.op != &ops::def::reshape() || g_.type(n.in[0]).shape.rank() == 0 ||
          g_.type(n.in[0]).shape[-1] != g_.type(v).shape[-1])
        break;
      v = n.in[0];
    }
    return v;
  }

  void add(Rewriter& rw, const Node& n, const Scaled& s) const {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> in = rw.map(g_.nodes()[s.matmul].in);
    in.push_back(rw.map(s.residual));
    in.push_back(ops::reshape(rw.map(s.scale), s.with.in.back().shape));
    rw.set(n.out[0], rw.to().add(*s.with.op, s.with.attrs, in)[0]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& supports_;
  const Uses uses_;
  std::map<size_t, Scaled> fused_;  // by sum
};

}  // namespace

Graph fuse_scaled_residuals(
    const Graph& g, const std::function<bool(const Signature&, const Signature&)>& supports) {
  return ScaledFuser(g, supports).run(g);
}

}  // namespace ebb
