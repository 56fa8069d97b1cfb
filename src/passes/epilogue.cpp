#include "passes/epilogue.h"

#include <optional>
#include <set>

#include "base/error.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

template <class A>
Attrs with_dtype(const Signature& s, DType out) {
  A a = s.as<A>();
  a.dtype = out == s.in[0].dtype ? "" : name_of(out);
  return a;
}

bool is_gemm(const OpDef* op) {
  return op == &ops::def::matmul() || op == &ops::def::conv2d() || op == &ops::def::conv2d_dx();
}

// The GEMM (matmul or implicit GEMM of a convolution) `s` with a residual and result type `out`.
Signature with_residual(const Signature& s, const Type& residual, DType out) {
  Signature a = s;
  if (s.op == &ops::def::matmul())
    a.attrs = with_dtype<ops::Matmul>(s, out);
  else if (s.op == &ops::def::conv2d())
    a.attrs = with_dtype<ops::Conv2d>(s, out);
  else
    a.attrs = with_dtype<ops::Conv2dDx>(s, out);
  a.in.push_back(residual);
  a.out[0].dtype = out;
  return a;
}

// A sum that fuses into the GEMM that produces one of its operands.
struct FusedResidual {
  size_t gemm = 0;  // node
  int32_t residual = -1;
  Signature fused;
};

class ResidualFuser {
 public:
  ResidualFuser(const Graph& g,
                const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g), supports_(supports), uses_(g) {}

  // Returns `otherwise` if no sum fuses.
  Graph run(const Graph& otherwise) {
    std::set<size_t> taken;
    for (const Node& n : g_.nodes()) {
      fused_.push_back(fuse_sum(n));
      if (fused_.back()) taken.insert(fused_.back()->gemm);
    }
    if (taken.empty()) return otherwise;
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (fused_[i])
        add(rw, n, *fused_[i]);
      else if (!taken.contains(i))
        rw.copy(n);
    }
    rw.copy_ends();
    return rw.take();
  }

 private:
  static bool is_sum(const Node& n) {
    static const Scalar of_two[] = {Scalar::input(0) + Scalar::input(1)};
    static const std::string sum = Expr(2, of_two).text();
    return n.op == &ops::def::pointwise() && n.in.size() == 2 && n.in[0] != n.in[1] &&
           n.attrs.as<ops::Pointwise>().expr.text() == sum;
  }

  bool fuses_into_reader(int32_t v) const {
    const Node* reader = uses_.only_reader(v);
    if (reader == nullptr) return false;
    return !adds_to_gemm(*reader, v) && uses_.will_fuse(reader, g_.type(v).shape);
  }
  // Whether `n` adds `v` to a GEMM's result without another reader, so that `v` may become its
  // residual.
  bool adds_to_gemm(const Node& n, int32_t v) const {
    if (!is_sum(n)) return false;
    const Node* other = uses_.single_use_producer(n.in[n.in[0] == v ? 1 : 0]);
    return other != nullptr && is_gemm(other->op);
  }
  // Whether the value is already the result of a GEMM with a residual.
  bool is_residual_fused(int32_t v) const {
    const int32_t n = g_.producer(v);
    return n >= 0 && fused_[static_cast<size_t>(n)].has_value();
  }

  std::optional<FusedResidual> fuse_sum(const Node& n) const {
    if (!is_sum(n) || fuses_into_reader(n.out[0])) return {};
    // of two GEMMs the later one: the other operand exists by then
    const bool later = g_.producer(n.in[1]) > g_.producer(n.in[0]);
    if (auto s = fuse_into(n, later ? 1 : 0)) return s;
    return fuse_into(n, later ? 0 : 1);
  }

  std::optional<FusedResidual> fuse_into(const Node& n, size_t which) const {
    const int32_t gemm = n.in[which], residual = n.in[1 - which];
    const Node* p = uses_.single_use_producer(gemm);
    const Type& out = g_.type(n.out[0]);
    if (p == nullptr || !is_gemm(p->op) || p->out.size() != 1 ||
        !(g_.type(gemm).shape == out.shape))
      return {};
    const Type& t = g_.type(residual);
    if (t.shape == out.shape && !is_residual_fused(residual) &&
        uses_.will_fuse(uses_.single_use_producer(residual), out.shape))
      return {};
    const Signature plain = g_.signature(*p);
    if (!ops::takes_residual(plain, t)) return {};
    const Signature with = with_residual(plain, t, out.dtype);
    if (!supports_(plain, with)) return {};
    return FusedResidual{static_cast<size_t>(g_.producer(gemm)), residual, with};
  }

  void add(Rewriter& rw, const Node& n, const FusedResidual& s) const {
    const Node& p = g_.nodes()[s.gemm];
    std::vector<Value> in = rw.map(p.in);
    in.push_back(rw.map(s.residual));
    const AtScope scope(rw.to(), p.at);
    rw.set(n.out[0], rw.to().add(*p.op, s.fused.attrs, in)[0]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& supports_;
  const Uses uses_;
  std::vector<std::optional<FusedResidual>> fused_;  // by node, for the nodes visited so far
};

}  // namespace

Graph fuse_residuals(const Graph& g,
                     const std::function<bool(const Signature&, const Signature&)>& supports) {
  const Graph used = drop_unused_inputs(g);
  return ResidualFuser(used, supports).run(g);
}

}  // namespace ebb
