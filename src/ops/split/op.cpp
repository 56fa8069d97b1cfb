#include "ops/split/op.h"

#include "base/error.h"
#include "ir/copy_form.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Split>();
  require(s.in.size() == 1, "split: takes one input (got ", s.in.size(), ")  at ", s.at);
  Type part = s.in[0];
  require(
      0 <= a.dim && a.dim < part.shape.rank() && a.parts > 0 && part.shape[a.dim] % a.parts == 0,
      "split: ", a.parts, " parts must divide dim ", a.dim, "  x: ", part, "  at ", s.at);
  part.shape[a.dim] /= a.parts;
  return std::vector<Type>(static_cast<size_t>(a.parts), part);
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<Split>();
  const int64_t size = s.in[0].shape[a.dim] / a.parts;
  std::vector<Value> out;
  for (int64_t i = 0; i < a.parts; ++i)
    out.push_back(slice(in[0], a.dim, i * size, (i + 1) * size));
  return out;
}

std::vector<Value> vjp(const VjpCall& c) {
  std::vector<Value> parts;
  for (size_t i = 0; i < c.dout.size(); ++i) {
    const Type& t = c.out[i].type();
    parts.push_back(c.dout[i] ? c.dout[i] : constant(c.graph, 0, t.shape, t.dtype));
  }
  DType widest = parts[0].dtype();
  for (const Value& p : parts)
    if (p.dtype() == DType::f32) widest = DType::f32;
  for (Value& p : parts) p = cast(p, widest);
  return {concat(parts, c.sig.as<Split>().dim)};
}

CopyForm copy(const Signature& s) {
  const auto& a = s.as<Split>();
  CopyForm f{.dim = a.dim};
  const int64_t size = s.in[0].shape[a.dim] / a.parts;
  for (int64_t i = 0; i < a.parts; ++i) f.results.push_back({{0, i * size, (i + 1) * size}});
  return f;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {{.label = "middle", .attrs = Split{1, 3}, .in = {f32({4, 3, 5, 7})}},
          {.label = "last", .attrs = Split{1, 2}, .in = {f32({5, 24})}},
          {.label = "first", .attrs = Split{0, 3}, .in = {f32({9, 32})}},
          {.label = "one", .attrs = Split{0, 1}, .in = {f32({5})}},
          {.label = "odd", .attrs = Split{2, 5}, .in = {f32({2, 3, 35})}},
          {.label = "empty", .attrs = Split{1, 2}, .in = {f32({0, 4})}}};
}

}  // namespace

const OpDef& def::split() {
  static const OpDef d{.name = "split",
                       .attrs = +[] { return Attrs(Split{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .copy = copy,
                       .examples = examples};
  return d;
}

std::vector<Value> split(Value x, int64_t dim, int64_t parts) {
  if (dim < 0) dim += x.shape().rank();
  const Value in[] = {x};
  return x.graph->add(def::split(), Split{dim, parts}, in);
}

}  // namespace ebb::ops
