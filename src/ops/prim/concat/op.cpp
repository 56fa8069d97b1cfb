#include "ops/prim/concat/op.h"

#include <algorithm>

#include "base/error.h"
#include "ir/copy_form.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const int64_t dim = s.as<Concat>().dim;
  require(!s.in.empty(), "concat: needs an input  at ", s.at);
  Type out = s.in[0];
  require(0 <= dim && dim < out.shape.rank(), "concat: dim ", dim, " is out of range  ", out,
          "  at ", s.at);
  out.shape[dim] = 0;
  for (const Type& t : s.in) {
    require(t.dtype == out.dtype && t.shape.rank() == out.shape.rank(),
            "concat: dtypes and ranks must be equal  ", s.in[0], ", ", t, "  at ", s.at);
    for (int64_t d = 0; d < out.shape.rank(); ++d)
      require(d == dim || t.shape[d] == out.shape[d], "concat: sizes of dim ", d,
              " must be equal (", out.shape[d], ", ", t.shape[d], ")  ", s.in[0], ", ", t, "  at ",
              s.at);
    out.shape[dim] += t.shape[dim];
  }
  return {out};
}

std::vector<Value> vjp(const VjpCall& c) {
  const int64_t dim = c.sig.as<Concat>().dim;
  std::vector<Value> out;
  int64_t at = 0;
  for (const Value& x : c.in) {
    out.push_back(slice(c.dout[0], dim, at, at + x.shape()[dim]));
    at += x.shape()[dim];
  }
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const int64_t dim = s.as<Concat>().dim;
  const int64_t outer = out[0].shape.slice(0, dim).numel();
  auto to = out[0].v.begin();
  for (int64_t o = 0; o < outer; ++o)
    for (const RefArray& x : in) {
      const auto n = static_cast<int64_t>(x.v.size()) / outer;
      to = std::copy_n(x.v.begin() + o * n, n, to);
    }
}

CopyForm copy(const Signature& s) {
  CopyForm f{.dim = s.as<Concat>().dim, .results = {{}}};
  for (size_t i = 0; i < s.in.size(); ++i) f.results[0].push_back({i, 0, s.in[i].shape[f.dim]});
  return f;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "channels", .attrs = Concat{3}, .in = {f32({2, 3, 5, 7}), f32({2, 3, 5, 4})}},
      {.label = "rows", .attrs = Concat{0}, .in = {f32({2, 7}), f32({1, 7}), f32({3, 7})}},
      {.label = "middle", .attrs = Concat{1}, .in = {f32({3, 2, 5}), f32({3, 0, 5})}},
      {.label = "one", .attrs = Concat{0}, .in = {f32({5})}},
      {.label = "integers",
       .attrs = Concat{0},
       .in = {{DType::i64, {3}}, {DType::i64, {2}}},
       .integers = 99},
      {.label = "aligned", .attrs = Concat{2}, .in = {f32({3, 5, 16}), f32({3, 5, 8})}},
      {.label = "empty", .attrs = Concat{1}, .in = {f32({0, 3}), f32({0, 2})}},
      {.label = "skip",
       .attrs = Concat{3},
       .in = {f32({32, 32, 32, 128}), f32({32, 32, 32, 128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::concat() {
  static const OpDef d{.name = "concat",
                       .attrs = +[] { return Attrs(Concat{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .copy = copy,
                       .examples = examples};
  return d;
}

Value concat(std::vector<Value> x, int64_t dim) {
  require(!x.empty(), "concat: needs an input");
  if (dim < 0) dim += x[0].shape().rank();
  return x.size() == 1 ? x[0] : x[0].graph->add(def::concat(), Concat{dim}, x)[0];
}

}  // namespace ebb::ops
