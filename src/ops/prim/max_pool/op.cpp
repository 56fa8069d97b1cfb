#include "ops/prim/max_pool/op.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/prim/max_pool_grad/op.h"

namespace ebb::ops {

PoolGeometry pool_geometry(const Signature& s, const MaxPool& a) {
  require(!s.in.empty() && s.in[0].shape.rank() == 4 && is_float(s.in[0].dtype), s.op->name,
          ": takes float images [N,H,W,C]  at ", s.at);
  const Shape& x = s.in[0].shape;
  require(a.window > 0 && a.stride > 0, s.op->name, ": window (", a.window, ") and stride (",
          a.stride, ") must be positive  x: ", s.in[0], "  at ", s.at);
  require(x[1] >= a.window && x[2] >= a.window, s.op->name, ": the window (", a.window,
          ") must fit into the image (", x[1], "x", x[2], ")  x: ", s.in[0], "  at ", s.at);
  return {.n = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .p = (x[1] - a.window) / a.stride + 1,
          .q = (x[2] - a.window) / a.stride + 1,
          .window = a.window,
          .stride = a.stride};
}

namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 1, "max_pool: takes x (got ", s.in.size(), " inputs)  at ", s.at);
  const PoolGeometry g = pool_geometry(s, s.as<MaxPool>());
  return {{s.in[0].dtype, {g.n, g.p, g.q, g.c}}};
}

std::vector<Value> vjp(const VjpCall& c) {
  return {max_pool_grad(c.in[0], c.dout[0], c.sig.as<MaxPool>())};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const PoolGeometry g = pool_geometry(s, s.as<MaxPool>());
  for (int64_t i = 0; i < out[0].shape.numel(); ++i) {
    const int64_t c = i % g.c, q = i / g.c % g.q, p = i / (g.c * g.q) % g.p;
    const int64_t n = i / (g.c * g.q * g.p);
    double best = -std::numeric_limits<double>::infinity();
    for (int64_t t = 0; t < g.window * g.window; ++t) {
      const int64_t row = p * g.stride + t / g.window, col = q * g.stride + t % g.window;
      best = std::max(best, in[0].v[static_cast<size_t>(((n * g.h + row) * g.w + col) * g.c + c)]);
    }
    out[0].v[static_cast<size_t>(i)] = best;
  }
}

Cost cost(const Signature& s) {
  Cost c;
  c.bytes = static_cast<double>(s.in[0].bytes() + s.out[0].bytes());
  const auto& a = s.as<MaxPool>();
  c.flops = static_cast<double>(s.out[0].shape.numel() * a.window * a.window);
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "halve", .attrs = MaxPool{2, 2}, .in = {f32({2, 6, 8, 5})}},
      {.label = "odd", .attrs = MaxPool{2, 2}, .in = {f32({3, 7, 5, 17})}},
      {.label = "overlapping", .attrs = MaxPool{3, 2}, .in = {f32({2, 7, 8, 3})}},
      {.label = "gaps", .attrs = MaxPool{1, 3}, .in = {f32({1, 7, 8, 2})}},
      {.label = "aligned", .attrs = MaxPool{3, 2}, .in = {f32({2, 7, 9, 16})}},
      {.label = "empty", .attrs = MaxPool{2, 2}, .in = {f32({0, 4, 4, 3})}},
      {.label = "large", .attrs = MaxPool{2, 2}, .in = {f32({32, 64, 64, 64})}, .bench = true},
  };
}

}  // namespace

const OpDef& def::max_pool() {
  static const OpDef d{.name = "max_pool",
                       .attrs = +[] { return Attrs(MaxPool{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples};
  return d;
}

Value max_pool(Value x, const MaxPool& attrs) { return x.graph->add1(def::max_pool(), attrs, {x}); }

Value max_pool2(Value x) { return max_pool(x, {.window = 2, .stride = 2}); }

}  // namespace ebb::ops
