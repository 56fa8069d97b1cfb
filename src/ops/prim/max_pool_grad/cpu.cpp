// max_pool_grad: images in parallel, their windows in order; sums where windows overlap are f32.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/prim/max_pool_grad/op.h"

namespace ebb::ops::cpu {
namespace {

// Which of a window's pixels is the first maximum of each channel, counted by rows. x: its corner.
template <class T>
void first_maxima(const PoolGeometry& g, const T* x, float* most, int32_t* where) {
  for (int64_t c = 0; c < g.c; ++c) most[c] = static_cast<float>(x[c]);
  std::fill_n(where, g.c, 0);
  for (int32_t t = 1; t < g.window * g.window; ++t) {
    const T* const from = x + (t / g.window * g.w + t % g.window) * g.c;
#pragma omp simd
    for (int64_t c = 0; c < g.c; ++c) {
      const float v = static_cast<float>(from[c]), m = most[c];
      const int32_t before = where[c];
      // The first one that is not a number wins, as in torch.
      const bool larger = ((v > m) | (v != v)) & (m == m);
      where[c] = larger ? t : before;
      most[c] = larger ? v : m;
    }
  }
}

// `sum` is [h*w*c] of scratch, then 2 * c.
template <class T>
void image(const PoolGeometry& g, const T* x, const T* dy, float* sum, T* dx) {
  const int64_t size = g.h * g.w * g.c;
  float* const most = sum + size;
  auto* const where = reinterpret_cast<int32_t*>(most + g.c);
  std::fill_n(sum, size, 0.0f);
  for (int64_t i = 0; i < g.p * g.q; ++i, dy += g.c) {
    const int64_t corner = (i / g.q * g.w + i % g.q) * g.stride * g.c;
    first_maxima(g, x + corner, most, where);
    for (int32_t t = 0; t < g.window * g.window; ++t) {
      float* const to = sum + corner + (t / g.window * g.w + t % g.window) * g.c;
#pragma omp simd
      for (int64_t c = 0; c < g.c; ++c) {
        const float v = static_cast<float>(dy[c]);
        to[c] += where[c] == t ? v : 0.0f;
      }
    }
  }
#pragma omp simd
  for (int64_t i = 0; i < size; ++i) dx[i] = static_cast<T>(sum[i]);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const PoolGeometry g = pool_geometry(s, s.as<ops::MaxPool>());
  const int64_t in = g.h * g.w * g.c, out = g.p * g.q * g.c;
  const int64_t scratch = in + 2 * g.c;
  const auto run = [=, type = s.in[0].dtype](const Call& call) {
    visit_dtype(type, [&](auto zero) {
      using T = decltype(zero);
      const auto* x = static_cast<const T*>(call.in[0]);
      const auto* dy = static_cast<const T*>(call.in[1]);
      auto* dx = static_cast<T*>(call.out[0]);
      auto* sums = static_cast<float*>(call.workspace);
#pragma omp parallel for
      for (int64_t n = 0; n < g.n; ++n)
        image(g, x + n * in, dy + n * out, sums + n * scratch, dx + n * in);
    });
  };
  return {.workspace = g.n * scratch * 4, .run = run};
}

}  // namespace

std::vector<Kernel> max_pool_grad() {
  return {{.op = "max_pool_grad",
           .name = "max_pool_grad_images",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
