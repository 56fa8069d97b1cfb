#include "passes/activations.h"

#include <algorithm>
#include <optional>

#include "ops/matmul_act/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

// What a formula is: an activation, or the gradient of one.
struct Known {
  Expr act;
  std::optional<size_t> slope_at;  // of a gradient: the input of the activation
};

// A formula of one input, and how its gradient reads, with y behind x or before.
struct Candidate {
  Expr act;
  std::string slopes[2];
};

// The formulas of one input that a graph has: where there is a gradient of one, there is the
// formula too.
std::vector<Candidate> candidates(const Graph& g) {
  std::vector<Candidate> all;
  for (const Node& n : g.nodes()) {
    if (n.op != &ops::def::pointwise() || n.out.size() != 1 || n.in.size() != 1) continue;
    const Expr& act = n.attrs.as<ops::Pointwise>().expr;
    if (std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.act == act; }))
      continue;
    const Expr slope = ops::slope_of(act);
    const Scalar turned[] = {Scalar::input(1), Scalar::input(0)};
    all.push_back({act, {slope.text(), Expr(2, slope.apply(turned)).text()}});
  }
  return all;
}

// A formula that becomes part of its product.
struct Melted {
  size_t product = 0;  // node
  int32_t y = -1;      // of a gradient: what the slope is taken at
  Signature with;
};

class Melter {
 public:
  Melter(const Graph& g, const std::function<bool(const Signature&, const Signature&)>& serves)
      : g_(g),
        serves_(serves),
        uses_(g),
        candidates_(candidates(g)),
        at_(g.nodes().size()),
        product_of_(g.nodes().size()) {}

  Graph run(const Graph& otherwise) {
    bool any = false;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::optional<Melted> m = melted(g_.nodes()[i]);
      if (!m || product_of_[m->product]) continue;
      product_of_[m->product] = i;
      at_[i] = m;
      any = true;
    }
    return any ? rewritten() : otherwise;
  }

 private:
  std::optional<Known> known(const Expr& e) const {
    if (e.inputs() == 1) return Known{e, {}};
    const std::string text = e.text();
    for (const Candidate& c : candidates_)
      for (const size_t at : {0u, 1u})
        if (text == c.slopes[at]) return Known{c.act, at};
    return {};
  }

  std::optional<Melted> melted(const Node& n) const {
    if (n.op != &ops::def::pointwise() || n.out.size() != 1 || n.in.size() > 2) return {};
    if (uses_.melts(uses_.only_reader(n.out[0]), g_.type(n.out[0]).shape)) return {};
    const auto k = known(n.attrs.as<ops::Pointwise>().expr);
    if (!k) return {};
    const int32_t z = n.in[k->slope_at ? 1 - *k->slope_at : 0];
    const int32_t y = k->slope_at ? n.in[*k->slope_at] : -1;
    const Type& type = g_.type(n.out[0]);
    if (!(g_.type(z) == type) || g_.producer(z) < 0 || y == z) return {};
    if (y >= 0) {
      if (!(g_.type(y) == type) || uses_.readers(z).size() != 1) return {};
      if (uses_.melts(uses_.made_for_one(y), type.shape)) return {};
    }
    return with(*k, z, y);
  }

  std::optional<Melted> with(const Known& k, int32_t z, int32_t y) const {
    const auto producer = static_cast<size_t>(g_.producer(z));
    const Node& p = g_.nodes()[producer];
    if (p.op != &ops::def::matmul()) return {};
    const Signature plain = g_.signature(p);
    const auto& a = plain.as<ops::Matmul>();
    const bool takes = !a.sums && !a.trans_a && !ops::epilogue_of(plain).addend;
    if (!takes || plain.in[0].dtype != plain.out[0].dtype) return {};
    Signature s{&ops::def::matmul_act(),
                ops::MatmulAct{.act = k.act,
                               .trans_b = a.trans_b,
                               .slope = y >= 0,
                               .keep = uses_.readers(z).size() > 1},
                plain.in,
                {},
                p.at};
    if (y >= 0) s.in.push_back(g_.type(y));
    s.out = s.op->infer(s);
    if (!serves_(plain, s)) return {};
    return Melted{producer, y, s};
  }

  // An activation is where its product was, as others may read that before the activation; a
  // gradient where it was, as what the slope is taken at may come behind the product.
  Graph rewritten() const {
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::optional<size_t> formula = product_of_[i];
      if (formula && at_[*formula]->y < 0)
        add(rw, *formula);
      else if (at_[i] && at_[i]->y >= 0)
        add(rw, i);
      else if (!formula && !at_[i])
        rw.copy(g_.nodes()[i]);
    }
    rw.copy_ends();
    return rw.take();
  }

  void add(Rewriter& rw, size_t formula) const {
    const Melted& m = *at_[formula];
    const Node& p = g_.nodes()[m.product];
    std::vector<Value> in = rw.map(p.in);
    if (m.y >= 0) in.push_back(rw.map(m.y));
    const AtScope scope(rw.to(), p.at);
    const std::vector<Value> out = rw.to().add(*m.with.op, m.with.attrs, in);
    rw.set(g_.nodes()[formula].out[0], out[0]);
    if (out.size() == 2) rw.set(p.out[0], out[1]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& serves_;
  const Uses uses_;
  const std::vector<Candidate> candidates_;
  std::vector<std::optional<Melted>> at_;          // by formula
  std::vector<std::optional<size_t>> product_of_;  // by product: the formula that it takes in
};

}  // namespace

Graph add_activations(const Graph& g,
                      const std::function<bool(const Signature&, const Signature&)>& serves) {
  const Graph used = drop_unused_inputs(g);
  return Melter(used, serves).run(g);
}

}  // namespace ebb
