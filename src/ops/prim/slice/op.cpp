#include "ops/prim/slice/op.h"

#include <algorithm>

#include "base/error.h"
#include "ir/copy_form.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Slice>();
  Type t = s.in.at(0);
  require(0 <= a.dim && a.dim < t.shape.rank(), "slice: dim ", a.dim, " is out of range  x: ", t,
          "  at ", s.at);
  require(0 <= a.begin && a.begin <= a.end && a.end <= t.shape[a.dim], "slice: [", a.begin, ", ",
          a.end, ") must lie in [0, ", t.shape[a.dim], ")  x: ", t, "  at ", s.at);
  t.shape[a.dim] = a.end - a.begin;
  return {t};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto& a = s.as<Slice>();
  const Shape& x = in[0].shape;
  const int64_t inner = x.slice(a.dim + 1, x.rank()).numel(), rows = x[a.dim];
  for (int64_t i = 0, n = 0; i < x.numel(); ++i) {
    const int64_t index = i / inner % rows;
    if (index >= a.begin && index < a.end)
      out[0].v[static_cast<size_t>(n++)] = in[0].v[static_cast<size_t>(i)];
  }
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "first", .attrs = Slice{0, 1, 3}, .in = {f32({5, 7})}},
      {.label = "middle", .attrs = Slice{1, 2, 5}, .in = {f32({3, 7, 11})}},
      {.label = "last", .attrs = Slice{2, 10, 11}, .in = {f32({3, 7, 11})}},
      {.label = "integers", .attrs = Slice{0, 0, 2}, .in = {{DType::i64, {3}}}, .integers = 99},
      {.label = "aligned", .attrs = Slice{1, 8, 24}, .in = {f32({5, 40})}},
      {.label = "none", .attrs = Slice{1, 2, 2}, .in = {f32({3, 7})}},
      {.label = "large", .attrs = Slice{2, 384, 768}, .in = {f32({16, 256, 1152})}, .bench = true},
  };
}

}  // namespace

const OpDef& def::slice() {
  static const OpDef d{.name = "slice",
                       .attrs = +[] { return Attrs(Slice{}); },
                       .infer = infer,
                       .reference = reference,
                       .copy =
                           +[](const Signature& s) {
                             const auto& a = s.as<Slice>();
                             return CopyForm{.dim = a.dim, .results = {{{0, a.begin, a.end}}}};
                           },
                       .cost =
                           +[](const Signature& s) {
                             return Cost{.bytes = 2.0 * static_cast<double>(s.out[0].bytes())};
                           },
                       .examples = examples};
  return d;
}

Value slice(Value x, int64_t dim, int64_t begin, int64_t end) {
  if (dim < 0) dim += x.shape().rank();
  if (dim >= 0 && dim < x.shape().rank() && begin == 0 && end == x.shape()[dim]) return x;
  return x.graph->add1(def::slice(), Slice{dim, begin, end}, {x});
}

}  // namespace ebb::ops
