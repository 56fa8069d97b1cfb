// max_pool_grad: images in parallel, their windows in order; sums where windows overlap are f32.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/prim/max_pool_grad/op.h"

namespace ebb::ops::cpu {
namespace {

// Where in its image the maximum of one channel of the window at x stands.
template <class T>
int64_t first_maximum(const PoolGeometry& g, const T* x) {
  int64_t best = 0;
  float most = static_cast<float>(x[0]);
  for (int64_t t = 1; t < g.window * g.window; ++t) {
    const int64_t at = (t / g.window * g.w + t % g.window) * g.c;
    const float v = static_cast<float>(x[at]);
    if (!(v > most) && v == v) continue;
    best = at;
    most = v;
    if (v != v) break;  // not a number: the first one, as in torch
  }
  return best;
}

template <class T>
void image(const PoolGeometry& g, const T* x, const T* dy, float* sum, T* dx) {
  std::fill_n(sum, g.h * g.w * g.c, 0.0f);
  for (int64_t i = 0; i < g.p * g.q; ++i) {
    const int64_t corner = (i / g.q * g.w + i % g.q) * g.stride * g.c;
    for (int64_t c = 0; c < g.c; ++c)
      sum[corner + c + first_maximum(g, x + corner + c)] += static_cast<float>(dy[i * g.c + c]);
  }
  std::transform(sum, sum + g.h * g.w * g.c, dx, [](float v) { return static_cast<T>(v); });
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const PoolGeometry g = pool_geometry(s, s.as<ops::MaxPool>());
  const int64_t in = g.h * g.w * g.c, out = g.p * g.q * g.c;
  const auto run = [=, type = s.in[0].dtype](const Call& call) {
    visit_dtype(type, [&](auto zero) {
      using T = decltype(zero);
      const auto* x = static_cast<const T*>(call.in[0]);
      const auto* dy = static_cast<const T*>(call.in[1]);
      auto* dx = static_cast<T*>(call.out[0]);
      auto* sums = static_cast<float*>(call.workspace);
#pragma omp parallel for
      for (int64_t n = 0; n < g.n; ++n)
        image(g, x + n * in, dy + n * out, sums + n * in, dx + n * in);
    });
  };
  return {.workspace = g.n * in * 4, .run = run};
}

}  // namespace

std::vector<Kernel> max_pool_grad() {
  return {{.op = "max_pool_grad",
           .name = "max_pool_grad_images",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
