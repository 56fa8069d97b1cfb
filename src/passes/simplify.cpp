#include "passes/simplify.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "passes/expression_node.h"
#include "passes/made_node.h"

namespace ebb {
namespace {

bool holds_all_of(DType wide, DType narrow) {
  return wide == narrow || (wide == DType::f32 && is_float(narrow));
}

// The inputs that a node reads; `from`: what a value is a lossless cast of.
std::vector<int32_t> inputs_before_casts(const Graph& g, const Node& n,
                                         const std::vector<int32_t>& from,
                                         const std::function<bool(const Signature&)>& supported) {
  std::vector<int32_t> in = n.in;
  const auto before = [&](size_t k) { return from[static_cast<size_t>(n.in[k])]; };
  bool any = false;
  for (size_t k = 0; k < in.size(); ++k) any = any || before(k) != in[k];
  if (!any || n.op->matrix_work || expression_node_of(g, n)) return in;
  Signature s = g.signature(n);
  for (size_t k = 0; k < in.size(); ++k) {
    const Type cast = std::exchange(s.in[k], g.type(before(k)));
    if (gives_the_same(s) && supported(s))
      in[k] = before(k);
    else
      s.in[k] = cast;
  }
  return in;
}

}  // namespace

bool gives_the_same(const Signature& s) {
  Signature open = s;
  open.out.clear();
  try {
    return s.op->infer(open) == s.out;
  } catch (const Error&) {
    return false;
  }
}

bool is_cast(const Graph& g, const Node& n) {
  if (!is_elementwise(n) || n.in.size() != 1 || n.out.size() != 1) return false;
  const Expr e = expression_of(g, n);
  return e.code()[static_cast<size_t>(e.results()[0])].op == ScalarOp::input &&
         g.type(n.in[0]).shape == g.type(n.out[0]).shape;
}

bool is_lossless_cast(const Graph& g, const Node& n) {
  return is_cast(g, n) && holds_all_of(g.type(n.out[0]).dtype, g.type(n.in[0]).dtype);
}

Graph merge_casts(const Graph& g, const std::function<bool(const Signature&)>& supported) {
  std::vector<int32_t> from(static_cast<size_t>(g.values()));  // what a value is a lossless cast of
  for (int32_t v = 0; v < g.values(); ++v) from[static_cast<size_t>(v)] = v;
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    if (n.op->gathers) {
      const AtScope scope(rw.to(), n.at);
      std::vector<Value> in = rw.map(n.in);
      in[0] = rw.map(from[static_cast<size_t>(n.in[0])]);
      rw.set(n.out[0], ops::cast(rw.to().add(*n.op, n.attrs, in)[0], g.type(n.out[0]).dtype));
      continue;
    }
    if (!is_cast(g, n)) {
      Node before = n;
      before.in = inputs_before_casts(g, n, from, supported);
      rw.copy(before);
      continue;
    }
    const int32_t origin = from[static_cast<size_t>(n.in[0])];
    const DType dtype = g.type(n.out[0]).dtype;
    const AtScope scope(rw.to(), n.at);
    rw.set(n.out[0], ops::cast(rw.map(origin), dtype));
    if (holds_all_of(dtype, g.type(origin).dtype)) from[static_cast<size_t>(n.out[0])] = origin;
  }
  rw.copy_ends();
  return dead_code(rw.take());
}

Graph dead_code(const Graph& g) {
  std::vector<bool> live(static_cast<size_t>(g.values()));
  for (const NamedValue& o : g.outputs()) live[static_cast<size_t>(o.value)] = true;
  for (const NamedValue& u : g.updates()) live[static_cast<size_t>(u.value)] = true;
  const auto wanted = [&](const Node& n) {
    for (const int32_t v : n.out)
      if (live[static_cast<size_t>(v)]) return true;
    return false;
  };
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    if (!wanted(n)) continue;
    for (const int32_t v : n.in) live[static_cast<size_t>(v)] = true;
  }
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes())
    if (wanted(n)) rw.copy(n);
  rw.copy_ends();
  return rw.take();
}

Graph drop_unused_inputs(const Graph& g) {
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    std::optional<ExpressionNode> e = expression_node_of(g, n);
    if (e) e->drop_unused_operands();
    if (e && e->in.size() < n.in.size())
      add_made(rw, e->node());
    else
      rw.copy(n);
  }
  rw.copy_ends();
  return rw.take();
}

Graph common_subexpressions(const Graph& g) {
  Rewriter rw(g);
  rw.copy_sources();
  std::map<std::string, std::vector<Value>> seen;
  for (const Node& n : g.nodes()) {
    std::string key = std::string(n.op->name) + n.attrs.text();
    for (const Value& v : rw.map(n.in)) key += " %" + std::to_string(v.id);
    const auto it = seen.find(key);
    if (it == seen.end()) {
      rw.copy(n);
      seen[key] = rw.map(n.out);
      continue;
    }
    for (size_t i = 0; i < n.out.size(); ++i) rw.set(n.out[i], it->second[i]);
  }
  rw.copy_ends();
  return rw.take();
}

}  // namespace ebb
