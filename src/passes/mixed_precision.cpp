#include "passes/mixed_precision.h"

#include "ir/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb {

Graph mixed_precision(const Graph& g, DType dtype) {
  if (dtype == DType::f32) return g;
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> in = rw.map(n.in);
    for (Value& v : in) {
      if (!is_float(v.dtype()) || n.op->precision == OpDef::Precision::follow) continue;
      v = ops::cast(v, n.op->precision == OpDef::Precision::low ? dtype : DType::f32);
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
