#include "passes/activations.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ops/matmul_act/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/simplify.h"
#include "passes/slices.h"
#include "passes/uses.h"

namespace ebb {
namespace {

// An activation, or the gradient of one.
struct Known {
  Expr act;
  std::optional<size_t> input_at;  // of a gradient: which input the activation is taken at
};

// A unary expression of the graph, and its gradient as text with either operand order.
struct Candidate {
  Expr act;
  std::string grads[2];
};

// The unary expressions of a graph. A graph that has the gradient of one has the expression too.
std::vector<Candidate> candidates(const Graph& g) {
  std::vector<Candidate> all;
  for (const Node& n : g.nodes()) {
    if (n.op != &ops::def::pointwise() || n.out.size() != 1 || n.in.size() != 1) continue;
    const Expr& act = n.attrs.as<ops::Pointwise>().expr;
    if (std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.act == act; }))
      continue;
    const Expr grad = ops::activation_grad_of(act);
    const Scalar swapped[] = {Scalar::input(1), Scalar::input(0)};
    all.push_back({act, {grad.text(), Expr(2, grad.apply(swapped)).text()}});
  }
  return all;
}

// A pointwise node that fuses into a matmul.
struct FusedActivation {
  size_t matmul = 0;  // node
  int32_t y = -1;     // of a gradient: the value that the activation is taken at
  Signature with;
  std::set<size_t> gone = {};  // nodes in between without another reader
};

// One half of a value's columns.
struct Half {
  int32_t full = -1;
  int64_t which = 0;
};

std::optional<Half> half_of(const Graph& g, int32_t v) {
  const std::optional<SliceView> view = slice_view_of(g, v);
  if (!view) return {};
  const int64_t width = view->end - view->begin;
  if (g.type(view->base).shape[-1] != 2 * width || view->begin % width != 0) return {};
  return Half{view->base, view->begin / width};
}

// A gated unit: an expression of both halves of a value's columns, with unary expressions of one
// half inlined.
struct Gated {
  Expr act;
  int32_t z = -1;
  std::set<size_t> between;  // nodes
};

std::optional<Gated> gated(const Graph& g, const Node& n) {
  Gated out;
  std::vector<Scalar> x;
  const auto take = [&](int32_t v) -> std::optional<Scalar> {
    const std::optional<Half> h = half_of(g, v);
    if (!h || (out.z >= 0 && out.z != h->full)) return {};
    out.z = h->full;
    out.between.insert(static_cast<size_t>(g.producer(v)));
    return Scalar::input(h->which);
  };
  for (const int32_t v : n.in) {
    std::optional<Scalar> taken = take(v);
    if (!taken && g.producer(v) >= 0) {
      const auto before = static_cast<size_t>(g.producer(v));
      const Node& f = g.nodes()[before];
      const bool expression =
          f.op == &ops::def::pointwise() && f.in.size() == 1 && f.out.size() == 1;
      if (!expression || !(g.type(v) == g.type(n.out[0]))) return {};
      taken = take(f.in[0]);
      if (taken) taken = f.attrs.as<ops::Pointwise>().expr.apply({&*taken, 1})[0];
      out.between.insert(before);
    }
    if (!taken) return {};
    x.push_back(*taken);
  }
  out.act = Expr(2, n.attrs.as<ops::Pointwise>().expr.apply(x));
  if (!out.act.uses(0) || !out.act.uses(1)) return {};
  return out;
}

class ActivationFuser {
 public:
  ActivationFuser(const Graph& g,
                  const std::function<bool(const Signature&, const Signature&)>& supports)
      : g_(g),
        supports_(supports),
        uses_(g),
        candidates_(candidates(g)),
        at_(g.nodes().size()),
        matmul_of_(g.nodes().size()) {}

  Graph run(const Graph& otherwise) {
    bool any = false;
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const std::optional<FusedActivation> m = fused(g_.nodes()[i]);
      if (!m || matmul_of_[m->matmul]) continue;
      matmul_of_[m->matmul] = i;
      at_[i] = m;
      gone_.insert(m->gone.begin(), m->gone.end());
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
        if (text == c.grads[at]) return Known{c.act, at};
    return {};
  }

  std::optional<FusedActivation> fused(const Node& n) const {
    if (n.op != &ops::def::pointwise() || n.out.size() != 1 || n.in.size() > 2) return {};
    if (const auto gate = gated(g_, n)) return with_gate(*gate, n);
    if (uses_.will_fuse(uses_.only_reader(n.out[0]), g_.type(n.out[0]).shape)) return {};
    const auto k = known(n.attrs.as<ops::Pointwise>().expr);
    if (!k) return {};
    const int32_t z = n.in[k->input_at ? 1 - *k->input_at : 0];
    const int32_t y = k->input_at ? n.in[*k->input_at] : -1;
    const Type& type = g_.type(n.out[0]);
    if (!(g_.type(z) == type) || g_.producer(z) < 0 || y == z) return {};
    if (y >= 0) {
      if (!(g_.type(y) == type) || uses_.readers(z).size() != 1) return {};
      if (uses_.will_fuse(uses_.single_use_producer(y), type.shape)) return {};
    }
    const ops::MatmulAct a{.act = k->act, .grad = y >= 0, .keep = uses_.readers(z).size() > 1};
    return with(a, z, y);
  }

  std::optional<FusedActivation> with(ops::MatmulAct a, int32_t z, int32_t y) const {
    const auto producer = static_cast<size_t>(g_.producer(z));
    const Node& p = g_.nodes()[producer];
    if (p.op != &ops::def::matmul()) return {};
    const Signature plain = g_.signature(p);
    const auto& matmul = plain.as<ops::Matmul>();
    const bool takes = !matmul.row_sums && !matmul.trans_a && !ops::epilogue_of(plain).residual;
    if (!takes || plain.in[0].dtype != plain.out[0].dtype) return {};
    a.trans_b = matmul.trans_b;
    Signature s{&ops::def::matmul_act(), a, plain.in, {}, p.at};
    if (y >= 0) s.in.push_back(g_.type(y));
    s.out = s.op->infer(s);
    if (!supports_(plain, s)) return {};
    return FusedActivation{producer, y, s};
  }

  // If nothing else reads the halves, the matmul's result need not be written: then fusing pays
  // even where fuse would inline the expression into its readers.
  std::optional<FusedActivation> with_gate(const Gated& gate, const Node& n) const {
    const Type& type = g_.type(n.out[0]);
    if (g_.producer(gate.z) < 0) return {};
    std::set<size_t> gone = unread(gate, n);
    const auto& readers = uses_.readers(gate.z);
    const bool keep = !std::includes(gone.begin(), gone.end(), readers.begin(), readers.end());
    if (keep && uses_.will_fuse(uses_.only_reader(n.out[0]), type.shape)) return {};
    std::optional<FusedActivation> m = with({.act = gate.act, .keep = keep}, gate.z, -1);
    if (!m || !(m->with.out[0] == type)) return {};
    m->gone = std::move(gone);
    return m;
  }

  // The nodes between the matmul and the gated unit that lose their last reader.
  std::set<size_t> unread(const Gated& gate, const Node& n) const {
    std::set<size_t> gone, left{static_cast<size_t>(g_.producer(n.out[0]))};
    for (auto i = gate.between.rbegin(); i != gate.between.rend(); ++i) {
      const auto& out = g_.nodes()[*i].out;
      const bool read = std::any_of(out.begin(), out.end(), [&](int32_t v) {
        const auto& by = uses_.readers(v);
        return !std::includes(left.begin(), left.end(), by.begin(), by.end());
      });
      if (read) continue;
      gone.insert(*i);
      left.insert(*i);
    }
    return gone;
  }

  // An activation takes the matmul's position, since other nodes may read the pre-activation before
  // it. A gradient keeps its own position: the value it is taken at may be computed after the
  // matmul.
  Graph rewritten() const {
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      if (gone_.contains(i)) continue;
      const std::optional<size_t> expression = matmul_of_[i];
      if (expression && at_[*expression]->y < 0)
        add(rw, *expression);
      else if (at_[i] && at_[i]->y >= 0)
        add(rw, i);
      else if (!expression && !at_[i])
        rw.copy(g_.nodes()[i]);
    }
    rw.copy_ends();
    return rw.take();
  }

  void add(Rewriter& rw, size_t expression) const {
    const FusedActivation& m = *at_[expression];
    const Node& p = g_.nodes()[m.matmul];
    std::vector<Value> in = rw.map(p.in);
    if (m.y >= 0) in.push_back(rw.map(m.y));
    const AtScope scope(rw.to(), p.at);
    const std::vector<Value> out = rw.to().add(*m.with.op, m.with.attrs, in);
    rw.set(g_.nodes()[expression].out[0], out[0]);
    if (out.size() == 2) rw.set(p.out[0], out[1]);
  }

  const Graph& g_;
  const std::function<bool(const Signature&, const Signature&)>& supports_;
  const Uses uses_;
  const std::vector<Candidate> candidates_;
  std::vector<std::optional<FusedActivation>> at_;  // by pointwise node
  std::vector<std::optional<size_t>> matmul_of_;    // by matmul: the pointwise node fused into it
  std::set<size_t> gone_;
};

}  // namespace

Graph fuse_activations(const Graph& g,
                       const std::function<bool(const Signature&, const Signature&)>& supports) {
  const Graph used = drop_unused_inputs(g);
  return ActivationFuser(used, supports).run(g);
}

}  // namespace ebb
