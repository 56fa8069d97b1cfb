#include "passes/simplify.h"

#include <map>
#include <type_traits>

#include "ir/op.h"
#include "ops/prim/embedding/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "passes/made_node.h"

namespace ebb {
namespace {

// The node without unused inputs; types and shape become explicit.
template <class Attributes>
Node with_used_inputs(const Graph& g, Node n) {
  Attributes a = n.attrs.as<Attributes>();
  std::vector<int32_t> in;
  std::vector<Scalar> x;
  Shape shape(a.shape);
  for (size_t k = 0; k < n.in.size(); ++k) {
    shape = broadcast(shape, g.type(n.in[k]).shape, "drop_unused_inputs");
    const bool used = a.expr.uses(static_cast<int64_t>(k));
    x.push_back(used ? Scalar::input(static_cast<int64_t>(in.size())) : Scalar(0.0));
    if (used) in.push_back(n.in[k]);
  }
  if (in.size() == n.in.size()) return n;
  a.expr = Expr(static_cast<int64_t>(in.size()), a.expr.apply(x));
  a.shape = shape.sizes();
  if constexpr (std::is_same_v<Attributes, ops::Pointwise>) {
    a.dtypes.clear();
    for (const int32_t v : n.out) a.dtypes += str(a.dtypes.empty() ? "" : ",", g.type(v).dtype);
  }
  n.attrs = a;
  n.in = in;
  return n;
}

bool is_cast(const Graph& g, const Node& n) {
  if (n.op != &ops::def::pointwise() || n.in.size() != 1 || n.out.size() != 1) return false;
  const Expr& e = n.attrs.as<ops::Pointwise>().expr;
  return e.code()[static_cast<size_t>(e.results()[0])].op == ScalarOp::input &&
         g.type(n.in[0]).shape == g.type(n.out[0]).shape;
}

bool holds_all_of(DType wide, DType narrow) {
  return wide == narrow || (wide == DType::f32 && is_float(narrow));
}

}  // namespace

bool is_lossless_cast(const Graph& g, const Node& n) {
  return is_cast(g, n) && holds_all_of(g.type(n.out[0]).dtype, g.type(n.in[0]).dtype);
}

Graph merge_casts(const Graph& g) {
  std::vector<int32_t> from(static_cast<size_t>(g.values()));  // what a value is a lossless cast of
  for (int32_t v = 0; v < g.values(); ++v) from[static_cast<size_t>(v)] = v;
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    if (n.op == &ops::def::embedding()) {
      const AtScope scope(rw.to(), n.at);
      const Value rows =
          ops::embedding(rw.map(from[static_cast<size_t>(n.in[0])]), rw.map(n.in[1]));
      rw.set(n.out[0], ops::cast(rows, g.type(n.out[0]).dtype));
      continue;
    }
    if (!is_cast(g, n)) {
      rw.copy(n);
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
    if (n.op == &ops::def::pointwise())
      add_made(rw, with_used_inputs<ops::Pointwise>(g, n));
    else if (n.op == &ops::def::reduce())
      add_made(rw, with_used_inputs<ops::Reduce>(g, n));
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
