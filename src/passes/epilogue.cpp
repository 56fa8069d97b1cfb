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

bool is_product(const OpDef* op) {
  return op == &ops::def::matmul() || op == &ops::def::conv2d() || op == &ops::def::conv2d_dx();
}

// The product `s` with an addend, giving `out`.
Signature added(const Signature& s, const Type& addend, DType out) {
  Signature a = s;
  if (s.op == &ops::def::matmul())
    a.attrs = with_dtype<ops::Matmul>(s, out);
  else if (s.op == &ops::def::conv2d())
    a.attrs = with_dtype<ops::Conv2d>(s, out);
  else
    a.attrs = with_dtype<ops::Conv2dDx>(s, out);
  a.in.push_back(addend);
  a.out[0].dtype = out;
  return a;
}

// A sum that becomes its product's addend.
struct Sum {
  size_t product = 0;  // node
  int32_t addend = -1;
  Signature added;
};

class Adder {
 public:
  Adder(const Graph& g, const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g), supports_(supports), uses_(g) {}

  // The graph as it was where no sum becomes an addend.
  Graph run(const Graph& otherwise) {
    std::set<size_t> taken;
    for (const Node& n : g_.nodes()) {
      sums_.push_back(sum_of(n));
      if (sums_.back()) taken.insert(sums_.back()->product);
    }
    if (taken.empty()) return otherwise;
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (sums_[i])
        add(rw, n, *sums_[i]);
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
    return !sums_a_product_with(*reader, v) && uses_.will_fuse(reader, g_.type(v).shape);
  }
  // A sum of `v` and of a product that is there for it alone, whose addend `v` may become.
  bool sums_a_product_with(const Node& n, int32_t v) const {
    if (!is_sum(n)) return false;
    const Node* other = uses_.single_use_producer(n.in[n.in[0] == v ? 1 : 0]);
    return other != nullptr && is_product(other->op);
  }
  // The value is a product's own result by now.
  bool added_by_a_product(int32_t v) const {
    const int32_t n = g_.producer(v);
    return n >= 0 && sums_[static_cast<size_t>(n)].has_value();
  }

  std::optional<Sum> sum_of(const Node& n) const {
    if (!is_sum(n) || fuses_into_reader(n.out[0])) return {};
    // of two products the later one: the other is there by then
    const bool later = g_.producer(n.in[1]) > g_.producer(n.in[0]);
    if (auto s = sum_with(n, later ? 1 : 0)) return s;
    return sum_with(n, later ? 0 : 1);
  }

  std::optional<Sum> sum_with(const Node& n, size_t which) const {
    const int32_t product = n.in[which], addend = n.in[1 - which];
    const Node* p = uses_.single_use_producer(product);
    const Type& out = g_.type(n.out[0]);
    if (p == nullptr || !is_product(p->op) || p->out.size() != 1 ||
        !(g_.type(product).shape == out.shape))
      return {};
    const Type& t = g_.type(addend);
    if (t.shape == out.shape && !added_by_a_product(addend) &&
        uses_.will_fuse(uses_.single_use_producer(addend), out.shape))
      return {};
    const Signature plain = g_.signature(*p);
    if (!ops::takes_addend(plain, t)) return {};
    const Signature with = added(plain, t, out.dtype);
    if (!supports_(plain, with)) return {};
    return Sum{static_cast<size_t>(g_.producer(product)), addend, with};
  }

  void add(Rewriter& rw, const Node& n, const Sum& s) const {
    const Node& p = g_.nodes()[s.product];
    std::vector<Value> in = rw.map(p.in);
    in.push_back(rw.map(s.addend));
    const AtScope scope(rw.to(), p.at);
    rw.set(n.out[0], rw.to().add(*p.op, s.added.attrs, in)[0]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& supports_;
  const Uses uses_;
  std::vector<std::optional<Sum>> sums_;  // by node, of those that were looked at
};

}  // namespace

Graph fuse_residuals(const Graph& g,
                     const std::function<bool(const Signature&, const Signature&)>& supports) {
  const Graph used = drop_unused_inputs(g);
  return Adder(used, supports).run(g);
}

}  // namespace ebb
