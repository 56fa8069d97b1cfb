#include "passes/fusion/rematerialise.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/loop/op.h"
#include "passes/made_node.h"
#include "passes/uses.h"

namespace ebb {
namespace {

constexpr double cheap = 30;  // flops of an expression that may be recomputed in every sweep

// Whether every device computes it to the same bits in any context: functions may be approximated
// where 16-bit results allow it, operations of one flop are not.
bool is_exact(const Expr& e) {
  return std::ranges::all_of(e.code(), [](const auto& i) { return info_of(i.op).flops <= 1; });
}

// A value as an elementwise expression of others.
struct Expression {
  Expr expr;  // one result
  std::vector<int32_t> in;
};

class Rematerialiser {
 public:
  Rematerialiser(const Graph& g, size_t end, const std::function<bool(const Signature&)>& supports)
      : g_(g),
        end_(end),
        supports_(supports),
        uses_(g),
        last_(static_cast<size_t>(g.values())),
        rematerialised_(static_cast<size_t>(g.values())),
        nodes_(g.nodes()),
        changed_(g.nodes().size()) {}

  Graph run() {
    find_last_readers();
    for (size_t i = 0; i < end_; ++i)
      for (size_t k = 0; k < g_.nodes()[i].out.size(); ++k) try_value(i, k);
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < nodes_.size(); ++i)
      changed_[i] ? add_made(rw, nodes_[i]) : rw.copy(nodes_[i]);
    rw.copy_ends();
    return rw.take();
  }

 private:
  size_t& last(int32_t v) { return last_[static_cast<size_t>(v)]; }

  // Looks through reshapes, whose results alias their input.
  void find_last_readers() {
    for (int32_t v = 0; v < g_.values(); ++v)
      if (const auto& readers = uses_.readers(v); !readers.empty()) last(v) = *readers.rbegin();
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.nodes()[i];
      if (n.op->renames) last(n.in[0]) = std::max(last(n.in[0]), last(n.out[0]));
    }
  }

  // The values with the longest lifetimes come first; what they are recomputed from is kept.
  void try_value(size_t i, size_t k) {
    const int32_t v = g_.nodes()[i].out[k];
    const auto& readers = uses_.readers(v);
    std::vector<size_t> back(readers.lower_bound(end_), readers.end());
    const std::optional<Expression> expression = back.empty() ? std::nullopt : expression_of(i, k);
    if (!expression || last(v) != back.back()) return;
    std::vector<Node> changed;
    for (const size_t r : back) {
      if (r == g_.nodes().size() || !reads_no_more(nodes_[r], v, *expression)) return;
      changed.push_back(with(nodes_[r], v, *expression));
      if (!supports_(signature(changed.back()))) return;
    }
    for (size_t c = 0; c < back.size(); ++c) {
      nodes_[back[c]] = changed[c];
      changed_[back[c]] = true;
    }
    rematerialised_[static_cast<size_t>(v)] = true;
  }

  // Result k of node i as an expression, if one node computes it and rounds nothing on the store.
  std::optional<Expression> expression_of(size_t i, size_t k) const {
    const Node& n = g_.nodes()[i];
    const std::optional<ops::Loop> loop = ops::loop_of(g_, n);
    if (!loop || kind_of(*loop) == ops::LoopKind::pixels || g_.type(n.out[k]).dtype != DType::f32 ||
        loop->results[k].extent != ops::Extent::element)
      return {};
    const Expr& all = loop->expr;
    const size_t result = loop->reductions.size() + k;
    const std::vector<bool> used = inputs_of(all, result, result + 1);
    if (std::find(used.begin() + static_cast<int64_t>(n.in.size()), used.end(), true) != used.end())
      return {};  // it depends on reductions
    Expression f;
    std::vector<Scalar> x(used.size(), Scalar(0.0));
    for (size_t j = 0; j < n.in.size(); ++j) {
      if (!used[j]) continue;
      x[j] = Scalar::input(static_cast<int64_t>(f.in.size()));
      f.in.push_back(n.in[j]);
    }
    f.expr = Expr(static_cast<int64_t>(f.in.size()), {{all.apply(x)[result]}});
    return is_exact(f.expr) && f.expr.flops() <= cheap ? std::optional(f) : std::nullopt;
  }

  // Whether `n` may read the inputs of `v` in its place: no more bytes, and only values that live
  // until then.
  bool reads_no_more(const Node& n, int32_t v, const Expression& f) {
    const std::optional<ops::Loop> loop = ops::loop_of(g_, n);
    if (!loop || kind_of(*loop) != ops::LoopKind::rows || Shape(loop->shape) != g_.type(v).shape)
      return false;
    int64_t more = -g_.type(v).bytes();
    for (const int32_t o : f.in) {
      if (rematerialised_[static_cast<size_t>(o)] || (g_.producer(o) >= 0 && last(o) < last(v)))
        return false;
      if (std::find(n.in.begin(), n.in.end(), o) == n.in.end()) more += g_.type(o).bytes();
    }
    return more <= 0;
  }

  // The node with the expression in place of its input `v`.
  Node with(const Node& n, int32_t v, const Expression& f) const {
    Node out = n;
    std::erase(out.in, v);
    for (const int32_t o : f.in)
      if (std::find(out.in.begin(), out.in.end(), o) == out.in.end()) out.in.push_back(o);
    const auto input = [&](int32_t o) {
      return Scalar::input(std::find(out.in.begin(), out.in.end(), o) - out.in.begin());
    };
    std::vector<Scalar> operands, x;
    for (const int32_t o : f.in) operands.push_back(input(o));
    for (const int32_t o : n.in) x.push_back(o == v ? f.expr.apply(operands)[0] : input(o));
    auto a = n.attrs.as<ops::Loop>();
    const auto reductions = static_cast<size_t>(a.expr.inputs()) - n.in.size();
    for (size_t t = 0; t < reductions; ++t)
      x.push_back(Scalar::input(static_cast<int64_t>(out.in.size() + t)));
    a.expr = Expr(static_cast<int64_t>(out.in.size() + reductions), a.expr.apply(x));
    out.attrs = a;
    return out;
  }

  Signature signature(const Node& n) const {
    Signature s{n.op, n.attrs, {}, {}, n.at};
    for (const int32_t v : n.in) s.in.push_back(g_.type(v));
    s.out = n.op->infer(s);
    return s;
  }

  const Graph& g_;
  size_t end_;  // of the forward pass
  const std::function<bool(const Signature&)>& supports_;
  Uses uses_;
  std::vector<size_t> last_;          // by value: the last reader
  std::vector<bool> rematerialised_;  // by value
  std::vector<Node> nodes_;           // rewritten
  std::vector<bool> changed_;         // which of them are
};

}  // namespace

Graph rematerialise(const Graph& g, std::string_view loss,
                    const std::function<bool(const Signature&)>& supports) {
  const std::optional<size_t> end = end_of(g, loss);
  return end ? Rematerialiser(g, *end, supports).run() : g;
}

}  // namespace ebb
