#include "passes/mixed_precision.h"

#include "ir/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb {

namespace {

// An op with Precision::follow needs its float inputs to agree if they agreed before.
bool now_differ(const Graph& g, const Node& n, const std::vector<Value>& in) {
  if (n.op->expr || n.op->precision != OpDef::Precision::follow) return false;
  bool differ = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!(g.type(n.in[i]).dtype == g.type(n.in[0]).dtype)) return false;
    differ = differ || in[i].dtype() != in[0].dtype();
  }
  return differ;
}

}  // namespace

Graph mixed_precision(const Graph& g, DType dtype) {
  if (dtype == DType::f32) return g;
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> in = rw.map(n.in);
    const bool align = now_differ(g, n, in);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!is_float(in[i].dtype())) continue;
      if (align || (n.op->precision == OpDef::Precision::low && i < n.op->operands))
        in[i] = ops::cast(in[i], dtype);
      if (n.op->precision == OpDef::Precision::full) in[i] = ops::cast(in[i], DType::f32);
    }
    const std::vector<Value> out = rw.to().add(*n.op, n.attrs, in);
    for (size_t i = 0; i < out.size(); ++i) rw.set(n.out[i], out[i]);
  }
  // Outputs keep the types they had.
  for (const NamedValue& o : g.outputs())
    rw.to().output(o.name, ops::cast(rw.map(o.value), g.type(o.value).dtype));
  for (const NamedValue& u : g.updates())
    rw.to().update(u.name, ops::cast(rw.map(u.value), g.type(u.value).dtype));
  Graph out = rw.take();
  verify(out, "mixed_precision");
  return out;
}

}  // namespace ebb
