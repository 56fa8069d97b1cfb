// max_pool in plain loops, channels innermost.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/prim/max_pool/op.h"

namespace ebb::ops::cpu {
namespace {

// One row of results: y [q,c] from the rows of x that its windows read.
template <class T>
void pool_row(const PoolGeometry& g, const T* x, T* y) {
  for (int64_t q = 0; q < g.q; ++q) {
    T* const to = y + q * g.c;
    std::copy_n(x + q * g.stride * g.c, g.c, to);
    for (int64_t t = 1; t < g.window * g.window; ++t) {
      const T* const from = x + (t / g.window * g.w + q * g.stride + t % g.window) * g.c;
#pragma omp simd
      for (int64_t c = 0; c < g.c; ++c) {
        const float v = static_cast<float>(from[c]), most = static_cast<float>(to[c]);
        const bool wins = (v > most) | (v != v);  // also what is not a number, as in torch
        to[c] = static_cast<T>(wins ? v : most);
      }
    }
  }
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const PoolGeometry g = pool_geometry(s, s.as<ops::MaxPool>());
  const auto run = [g, type = s.in[0].dtype](const Call& call) {
    visit_dtype(type, [&](auto zero) {
      using T = decltype(zero);
      const auto* x = static_cast<const T*>(call.in[0]);
      auto* y = static_cast<T*>(call.out[0]);
#pragma omp parallel for
      for (int64_t i = 0; i < g.n * g.p; ++i) {
        const int64_t row = i / g.p * g.h + i % g.p * g.stride;
        pool_row(g, x + row * g.w * g.c, y + i * g.q * g.c);
      }
    });
  };
  return {.workspace = 0, .run = run};
}

}  // namespace

std::vector<Kernel> max_pool() {
  return {{.op = "max_pool",
           .name = "max_pool_rows",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
