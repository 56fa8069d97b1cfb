#include "passes/shortcuts.h"

#include <map>
#include <optional>
#include <set>

#include "ops/conv2d_shortcut/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"
#include "passes/prepare.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

// The nodes of a sum that becomes a conv2d_shortcut.
struct Both {
  size_t conv = 0, matmul = 0;
  ops::Conv2dShortcut attrs;
  std::vector<int32_t> y;  // what the matmul multiplies
};

class ShortcutMerger {
 public:
  ShortcutMerger(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                 const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g), supports_(supports), uses_(g), from_weights_(values_from_weights(g, is_weight)) {}

  Graph run() {
    std::set<size_t> gone;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::optional<Both> both = merged(g_.nodes()[i]);
      if (!both) continue;
      gone.insert({both->conv, both->matmul});
      sums_[i] = *both;
    }
    if (sums_.empty()) return g_;
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (sums_.contains(i))
        add(rw, g_.nodes()[i], sums_.at(i));
      else if (!gone.contains(i))
        rw.copy(g_.nodes()[i]);
    }
    rw.copy_ends();
    return dead_code(rw.take());
  }

 private:
  static bool is_sum(const Node& n) {
    static const Scalar of_two[] = {Scalar::input(0) + Scalar::input(1)};
    static const std::string sum = Expr(2, of_two).text();
    return n.op == &ops::def::pointwise() && n.in.size() == 2 && n.in[0] != n.in[1] &&
           n.attrs.as<ops::Pointwise>().expr.text() == sum;
  }

  std::optional<Both> merged(const Node& n) const {
    if (!is_sum(n)) return {};
    for (const size_t k : {0u, 1u})
      if (auto b = merged(n, n.in[k], n.in[1 - k])) return b;
    return {};
  }

  std::optional<Both> merged(const Node& n, int32_t conv, int32_t matmul) const {
    const Node* c = uses_.single_use_producer(conv);
    const Node* m = uses_.single_use_producer(matmul);
    const Type& type = g_.type(n.out[0]);
    if (c == nullptr || m == nullptr || c->op != &ops::def::conv2d() ||
        m->op != &ops::def::matmul() || m->out.size() != 1)
      return {};
    const auto& a = c->attrs.as<ops::Conv2d>();
    const auto& b = m->attrs.as<ops::Matmul>();
    if (!(g_.type(conv) == type) || !(g_.type(matmul) == type)) return {};
    if (b.trans_a || !b.trans_b || !biased(*c) || !biased(*m)) return {};
    const Signature plain = g_.signature(*c);
    const bool bias = c->in.size() + m->in.size() > 4;
    if (plain.in[0].dtype != type.dtype || g_.type(m->in[0]).dtype != type.dtype ||
        g_.type(m->in[1]).shape.rank() != 2)
      return {};
    Both both{static_cast<size_t>(g_.producer(conv)),
              static_cast<size_t>(g_.producer(matmul)),
              ops::Conv2dShortcut{a.stride, a.pad, bias},
              {}};
    Signature s{&ops::def::conv2d_shortcut(), both.attrs, plain.in, plain.out, n.at};
    s.in.resize(2);
    if (bias) s.in.push_back({DType::f32, {type.shape[-1]}});
    for (const std::vector<int32_t>& y : {summands(m->in[0]), std::vector{m->in[0]}}) {
      Signature of_y = s;
      for (const int32_t v : y) {
        of_y.in.push_back(g_.type(v));
        of_y.in.push_back({type.dtype, {type.shape[-1], g_.type(v).shape[-1]}});
      }
      both.y = y;
      if (supports_(plain, of_y)) return both;
    }
    return {};
  }

  // The tensors that `v` concatenates, if there are two; else v itself.
  std::vector<int32_t> summands(int32_t v) const {
    if (g_.producer(v) < 0) return {v};
    const Node& n = g_.nodes()[static_cast<size_t>(g_.producer(v))];
    const bool two = n.op == &ops::def::concat() && n.in.size() == 2 &&
                     n.attrs.as<ops::Concat>().dim == g_.type(v).shape.rank() - 1;
    return two ? n.in : std::vector{v};
  }

  // Whether a bias that depends on weights is all that it adds, if anything.
  bool biased(const Node& n) const {
    if (!from_weights_[static_cast<size_t>(n.in[1])] || n.in.size() > 3) return false;
    return n.in.size() == 2 ||
           (from_weights_[static_cast<size_t>(n.in[2])] && g_.type(n.in[2]).shape.rank() == 1);
  }

  void add(Rewriter& rw, const Node& n, const Both& both) const {
    const Node &c = g_.nodes()[both.conv], &m = g_.nodes()[both.matmul];
    const AtScope scope(rw.to(), c.at);
    std::vector<Value> in{rw.map(c.in[0]), rw.map(c.in[1])};
    Value bias;
    for (const Node* of : {&c, &m}) {
      if (of->in.size() < 3) continue;
      const Value one = ops::cast(rw.map(of->in[2]), DType::f32);
      bias = bias ? ops::map({bias, one}, [](auto v) { return v[0] + v[1]; }) : one;
    }
    if (bias) in.push_back(bias);
    const Value v = rw.map(m.in[1]);
    int64_t begin = 0;
    for (const int32_t y : both.y) {
      const int64_t end = begin + g_.type(y).shape[-1];
      in.push_back(rw.map(y));
      in.push_back(both.y.size() == 1 ? v : ops::slice(v, 1, begin, end));
      begin = end;
    }
    rw.set(n.out[0], rw.to().add(ops::def::conv2d_shortcut(), both.attrs, in)[0]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& supports_;
  const Uses uses_;
  std::vector<bool> from_weights_;  // by value
  std::map<size_t, Both> sums_;     // by node
};

}  // namespace

Graph merge_shortcuts(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                      const std::function<bool(const Signature&, const Signature&)>& supports) {
  return ShortcutMerger(g, is_weight, supports).run();
}

}  // namespace ebb
