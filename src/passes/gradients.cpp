#include "passes/gradients.h"

#include <algorithm>

#include "base/error.h"
#include "ir/contraction.h"
#include "ir/copy_form.h"
#include "ops/add/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pad/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/lower.h"

namespace ebb {
namespace {

// Rules of contractions are for sums of one product: what fusers made of them decomposes.
bool has_rule(const Signature& s) {
  if (s.op->contraction) {
    const Contraction c = s.op->contraction(s);
    if (!c.epilogue.is_sum() || c.products > 1) return false;
  }
  return !s.op->differentiable || s.op->vjp || s.op->expr || !s.op->decompose;
}

// The dims that the pass over the large tensors reduces for an input broadcast over `dims`: those
// of another broadcast input that has fewer, if that leaves little; the rest is reduced on the
// small result. So the gradients of a norm's gain [C] and of its statistics [N,1,1,C] come from one
// pass.
std::vector<int64_t> first_dims(const Signature& s, const std::vector<int64_t>& dims) {
  const Shape& shape = s.out[0].shape;
  std::vector<int64_t> best = dims;
  for (const Type& t : s.in) {
    const std::vector<int64_t> other = ops::broadcast_dims(t.shape, shape);
    int64_t repeats = 1;
    for (const int64_t d : other) repeats *= shape[d];
    if (repeats >= 16 && other.size() < best.size() &&
        std::includes(best.begin(), best.end(), other.begin(), other.end()))
      best = other;
  }
  return best;
}

// The value that the expression passes through unchanged, if it does.
Value as_input(const Scalar& s, std::span<const Value> in) {
  if (s.node().op != ScalarOp::input) return {};
  return in[static_cast<size_t>(s.node().value)];
}

// The gradients of a pointwise node: one pointwise node for all inputs of the result's size, one
// reduction for each broadcast input.
std::vector<Value> pointwise_vjp(const VjpCall& c, const std::vector<bool>& wanted) {
  const Expr f = expression_of(c.sig);
  const Shape& shape = c.sig.out[0].shape;
  std::vector<Value> in(c.in.begin(), c.in.end());
  std::vector<Scalar> x, weights;
  for (size_t i = 0; i < in.size(); ++i) x.push_back(Scalar::input(static_cast<int64_t>(i)));
  for (const Value& dy : c.dout) {
    if (dy) in.push_back(dy);
    weights.push_back(dy ? Scalar::input(static_cast<int64_t>(in.size()) - 1) : Scalar(0.0));
  }
  const std::vector<Scalar> dx = f.gradient(x, weights);
  const auto count = static_cast<int64_t>(in.size());
  std::vector<Value> out(c.in.size());
  std::vector<size_t> full;
  std::vector<Scalar> results;
  std::vector<DType> dtypes;
  for (size_t i = 0; i < out.size(); ++i) {
    const Type& t = c.in[i].type();
    if (!wanted[i] || dx[i].is_constant(0) || !is_float(t.dtype)) continue;
    if (t.shape == shape) {
      if (const Value same = as_input(dx[i], in); same && same.type() == t) {
        out[i] = same;  // a cast's gradient may pass as it is
        continue;
      }
      full.push_back(i);
      results.push_back(dx[i]);
      dtypes.push_back(t.dtype);
      continue;
    }
    const Scalar result[] = {dx[i]};
    const ops::Reduce r{.expr = Expr(count, result),
                        .dims = first_dims(c.sig, ops::broadcast_dims(t.shape, shape)),
                        .shape = shape.sizes()};
    out[i] = ops::cast(ops::sum_to(ops::reduce(c.graph, r, in)[0], t.shape), t.dtype);
  }
  if (full.empty()) return out;
  const auto values = ops::pointwise(c.graph, {Expr(count, results), shape.sizes(), dtypes}, in);
  for (size_t k = 0; k < full.size(); ++k) out[full[k]] = values[k];
  return out;
}

// The gradient of a range of a value's dim, from a node that copies it.
struct RangeGradient {
  int64_t dim = 0, begin = 0, end = 0;
  Value d;
};

// Whether ranges, in order, are of one dim and dtype and fill a value without overlaps.
bool tile(std::span<const RangeGradient> ranges, const Shape& whole) {
  int64_t end = 0;
  for (const RangeGradient& r : ranges) {
    if (r.dim != ranges[0].dim || r.d.dtype() != ranges[0].d.dtype() || r.begin != end)
      return false;
    end = r.end;
  }
  return !ranges.empty() && end == whole[ranges[0].dim];
}

class Backward {
 public:
  Backward(Graph& g, std::span<const Value> wrt)
      : g_(g),
        grad_(static_cast<size_t>(g.values())),
        ranges_(grad_.size()),
        needed_(grad_.size()) {
    for (const Value& v : wrt) needed_[static_cast<size_t>(v.id)] = true;
    for (const Node& n : g.nodes()) {
      bool any = false;
      for (const int32_t v : n.in) any = any || needed_[static_cast<size_t>(v)];
      any = any && n.op->differentiable;
      for (const int32_t v : n.out) needed_[static_cast<size_t>(v)] = any;
    }
  }

  // The gradient of an output, or a summand of it.
  void add(int32_t id, Value dv) {
    Value& slot = grad_[static_cast<size_t>(id)];
    slot = slot ? slot + dv : dv;
  }

  void run() {
    const size_t count = grad_.size();
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node n = g_.nodes()[i];  // a copy: the list grows
      if (!n.out.empty() && static_cast<size_t>(n.out[0]) < count) visit(n);
    }
  }

  // Once all readers of the value were visited.
  Value of(int32_t id) {
    std::vector<RangeGradient>& ranges = ranges_[static_cast<size_t>(id)];
    std::ranges::stable_sort(ranges, {}, &RangeGradient::begin);
    const Shape& whole = g_.type(id).shape;
    if (tile(ranges, whole)) {
      std::vector<Value> all;
      for (const RangeGradient& r : ranges) all.push_back(r.d);
      add(id, ops::concat(all, ranges[0].dim));
    } else {
      for (const RangeGradient& r : ranges) add(id, padded(r, whole));
    }
    ranges.clear();
    return grad_[static_cast<size_t>(id)];
  }

 private:
  static Value padded(const RangeGradient& r, const Shape& whole) {
    ops::Pad p{std::vector<int64_t>(static_cast<size_t>(whole.rank()), 0), {}};
    p.after = p.before;
    p.before[static_cast<size_t>(r.dim)] = r.begin;
    p.after[static_cast<size_t>(r.dim)] = whole[r.dim] - r.end;
    return ops::pad(r.d, p);
  }

  // Of a node that gives a range of its operand; ranges that fill it need no sum.
  bool visit_range(const Node& n, const Signature& s, Value dy) {
    if (!s.op->copy || n.in.size() != 1 || n.out.size() != 1) return false;
    const CopyForm form = s.op->copy(s);
    if (form.results[0].size() != 1) return false;
    const CopyForm::Part& part = form.results[0][0];
    ranges_[static_cast<size_t>(n.in[0])].push_back({form.dim, part.begin, part.end, dy});
    return true;
  }

  void visit(const Node& n) {
    bool any = false;
    std::vector<Value> in, out, dout;
    std::vector<bool> wanted;
    for (const int32_t v : n.in) {
      in.push_back(g_.value(v));
      wanted.push_back(needed_[static_cast<size_t>(v)]);
    }
    for (const int32_t v : n.out) {
      out.push_back(g_.value(v));
      dout.push_back(of(v));
      any = any || (dout.back() && needed_[static_cast<size_t>(v)]);
    }
    if (!any) return;
    const Signature s = g_.signature(n);
    const AtScope scope(g_, n.at);
    if (visit_range(n, s, dout[0])) return;
    const VjpCall call{g_, s, in, out, dout};
    require(s.op->vjp || s.op->expr, s.op->name, ": has no gradient  at ", s.at);
    const std::vector<Value> dx = s.op->vjp ? s.op->vjp(call) : pointwise_vjp(call, wanted);
    require(dx.size() == in.size(), s.op->name, ": its gradient rule gives ", dx.size(),
            " values for ", in.size(), " inputs");
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!dx[i] || !wanted[i]) continue;
      const bool fits = dx[i].dtype() == in[i].dtype() || dx[i].dtype() == DType::f32;
      require(fits && dx[i].shape() == in[i].shape(), s.op->name, ": the gradient of input ", i,
              " has type ", dx[i].type(), " for ", in[i].type(), "  at ", s.at);
      add(n.in[i], dx[i]);
    }
  }

  Graph& g_;
  std::vector<Value> grad_;
  std::vector<std::vector<RangeGradient>> ranges_;  // not in grad_ yet
  std::vector<bool> needed_;
};

std::vector<Value> found(Graph& g, std::span<const std::string> sources) {
  std::vector<Value> out;
  for (const std::string& name : sources) out.push_back(g.find(name));
  return out;
}

// The gradients become outputs.
void give(Graph& g, Backward& backward, std::span<const std::string> wrt) {
  const std::vector<Value> sources = found(g, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    Value d = backward.of(sources[i].id);
    if (!d) d = ops::constant(g, 0.0, sources[i].shape(), sources[i].dtype());
    g.output("grad." + wrt[i], d);
  }
  verify(g, "gradients");
}

}  // namespace

Graph gradients(const Graph& g, std::string_view loss, std::span<const std::string> wrt) {
  Graph out = lower(g, has_rule);
  const Value l = out.take_output(loss);
  require(l.type() == Type{DType::f32, {}}, "gradients: the loss must be f32[] (got ", l.type(),
          ")");
  Backward backward(out, found(out, wrt));
  backward.add(l.id, ops::constant(out, 1.0, {}));
  backward.run();
  out.output(loss, l);
  give(out, backward, wrt);
  return out;
}

Graph gradients(const Graph& g, std::span<const WeightedOutput> outputs,
                std::span<const std::string> wrt) {
  Graph out = lower(g, has_rule);
  Backward backward(out, found(out, wrt));
  for (const WeightedOutput& o : outputs) {
    const Value y = out.take_output(o.output), weight = out.find(o.weight);
    require(weight.shape() == y.shape(), "gradients: the weight of an output of ", y.type(), " is ",
            weight.type());
    backward.add(y.id, weight);
  }
  backward.run();
  give(out, backward, wrt);
  return out;
}

}  // namespace ebb
