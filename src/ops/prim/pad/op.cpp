#include "ops/prim/pad/op.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Pad>();
  Type t = s.in.at(0);
  const auto rank = static_cast<size_t>(t.shape.rank());
  require(a.before.size() == rank && a.after.size() == rank, "pad: needs a number for each dim (",
          a.before.size(), " before, ", a.after.size(), " after)  x: ", t, "  at ", s.at);
  for (size_t d = 0; d < rank; ++d) {
    require(a.before[d] >= 0 && a.after[d] >= 0, "pad: must not be negative (", a.before[d], ", ",
            a.after[d], " in dim ", d, ")  x: ", t, "  at ", s.at);
    t.shape[static_cast<int64_t>(d)] += a.before[d] + a.after[d];
  }
  return {t};
}

std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Pad>();
  Value dx = c.dout[0];
  const Shape& x = c.in[0].shape();
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t begin = a.before[static_cast<size_t>(d)];
    dx = slice(dx, d, begin, begin + x[d]);
  }
  return {dx};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& a = s.as<Pad>();
  const auto from = in[0].shape.strides(), to = out[0].shape.strides();
  std::fill(out[0].v.begin(), out[0].v.end(), 0.0);
  for (int64_t i = 0; i < in[0].shape.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (size_t d = 0; d < from.size(); ++d) {
      at += (rest / from[d] + a.before[d]) * to[d];
      rest %= from[d];
    }
    out[0].v[static_cast<size_t>(at)] = in[0].v[static_cast<size_t>(i)];
  }
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "image", .attrs = Pad{{0, 1, 2, 0}, {0, 2, 1, 0}}, .in = {f32({2, 3, 5, 7})}},
      {.label = "last", .attrs = Pad{{0, 0}, {0, 3}}, .in = {f32({5, 7})}},
      {.label = "first", .attrs = Pad{{2, 0}, {0, 0}}, .in = {f32({5, 7})}},
      {.label = "aligned", .attrs = Pad{{0, 1, 8}, {0, 2, 16}}, .in = {f32({3, 5, 40})}},
      {.label = "empty", .attrs = Pad{{2, 0}, {0, 0}}, .in = {f32({0, 7})}},
      {.label = "integers", .attrs = Pad{{1}, {1}}, .in = {{DType::i64, {3}}}, .integers = 99},
      {.label = "large",
       .attrs = Pad{{0, 1, 1, 0}, {0, 1, 1, 0}},
       .in = {f32({32, 32, 32, 128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::pad() {
  static const OpDef d{.name = "pad",
                       .attrs = +[] { return Attrs(Pad{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .examples = examples};
  return d;
}

Value pad(Value x, const Pad& attrs) {
  const auto zero = [](const std::vector<int64_t>& v) {
    return std::all_of(v.begin(), v.end(), [](int64_t n) { return n == 0; });
  };
  const auto rank = static_cast<size_t>(x.shape().rank());
  if (attrs.before.size() == rank && attrs.after.size() == rank && zero(attrs.before) &&
      zero(attrs.after))
    return x;
  return x.graph->add1(def::pad(), attrs, {x});
}

}  // namespace ebb::ops
