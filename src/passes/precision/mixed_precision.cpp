#include "passes/precision/mixed_precision.h"

#include <algorithm>

#include "ir/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/uses.h"

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

// By value: whether it is a parameter or buffer, or follows from such alone (a slice, a sum).
std::vector<bool> parameter_values(const Graph& g) {
  std::vector<bool> out(static_cast<size_t>(g.values()));
  for (const Source& s : g.sources())
    out[static_cast<size_t>(s.value)] = s.kind != Source::Kind::input && !is_updated(g, s);
  for (const Node& n : g.nodes())
    if (!n.in.empty() &&
        std::ranges::all_of(n.in, [&](int32_t v) { return out[static_cast<size_t>(v)]; }))
      for (const int32_t v : n.out) out[static_cast<size_t>(v)] = true;
  return out;
}

}  // namespace

Graph mixed_precision(const Graph& g, DType dtype, Parameters parameters) {
  if (dtype == DType::f32) return g;
  const std::vector<bool> is_parameter = parameter_values(g);
  const auto meets_activation = [&](const Node& n, const std::vector<Value>& in) {
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i].dtype() == dtype && !is_parameter[static_cast<size_t>(n.in[i])]) return true;
    return false;
  };
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    const AtScope scope(rw.to(), n.at);
    std::vector<Value> in = rw.map(n.in);
    const bool align = now_differ(g, n, in);
    const bool round = parameters == Parameters::rounded && n.op->expr && meets_activation(n, in);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!is_float(in[i].dtype())) continue;
      if (round && is_parameter[static_cast<size_t>(n.in[i])]) in[i] = ops::cast(in[i], dtype);
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
