#include "ops/prim/max_pool_grad/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2, "max_pool_grad: takes x and dy (got ", s.in.size(), " inputs)  at ",
          s.at);
  const PoolGeometry g = pool_geometry(s, s.as<MaxPool>());
  require(s.in[1] == Type{s.in[0].dtype, {g.n, g.p, g.q, g.c}}, "max_pool_grad: dy must be ",
          Type{s.in[0].dtype, {g.n, g.p, g.q, g.c}}, "  x: ", s.in[0], "  dy: ", s.in[1], "  at ",
          s.at);
  return {s.in[0]};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const PoolGeometry g = pool_geometry(s, s.as<MaxPool>());
  for (double& v : out[0].v) v = 0;
  for (int64_t i = 0; i < in[1].shape.numel(); ++i) {
    const int64_t c = i % g.c, q = i / g.c % g.q, p = i / (g.c * g.q) % g.p;
    const int64_t n = i / (g.c * g.q * g.p);
    const auto at = [&](int64_t t) {
      const int64_t row = p * g.stride + t / g.window, col = q * g.stride + t % g.window;
      return static_cast<size_t>(((n * g.h + row) * g.w + col) * g.c + c);
    };
    int64_t best = 0;
    for (int64_t t = 1; t < g.window * g.window; ++t)
      if (in[0].v[at(t)] > in[0].v[at(best)]) best = t;
    out[0].v[at(best)] += in[1].v[static_cast<size_t>(i)];
  }
}

Cost cost(const Signature& s) {
  Cost c;
  c.bytes = static_cast<double>(s.in[0].bytes() + s.in[1].bytes() + s.out[0].bytes());
  const auto& a = s.as<MaxPool>();
  c.flops = static_cast<double>(s.in[1].shape.numel() * (a.window * a.window + 1));
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "halve", .attrs = MaxPool{2, 2}, .in = {f32({2, 6, 8, 5}), f32({2, 3, 4, 5})}},
      {.label = "odd", .attrs = MaxPool{2, 2}, .in = {f32({3, 7, 5, 17}), f32({3, 3, 2, 17})}},
      {.label = "overlapping",
       .attrs = MaxPool{3, 2},
       .in = {f32({2, 7, 8, 3}), f32({2, 3, 3, 3})}},
      {.label = "aligned", .attrs = MaxPool{2, 2}, .in = {f32({2, 7, 8, 16}), f32({2, 3, 4, 16})}},
      {.label = "gaps", .attrs = MaxPool{2, 3}, .in = {f32({2, 9, 8, 3}), f32({2, 3, 3, 3})}},
      {.label = "empty", .attrs = MaxPool{2, 2}, .in = {f32({0, 4, 4, 3}), f32({0, 2, 2, 3})}},
      {.label = "large",
       .attrs = MaxPool{2, 2},
       .in = {f32({32, 64, 64, 64}), f32({32, 32, 32, 64})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::max_pool_grad() {
  static const OpDef d{.name = "max_pool_grad",
                       .attrs = +[] { return Attrs(MaxPool{}); },
                       .infer = infer,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples};
  return d;
}

Value max_pool_grad(Value x, Value dy, const MaxPool& attrs) {
  return x.graph->add1(def::max_pool_grad(), attrs, {x, dy});
}

}  // namespace ebb::ops
