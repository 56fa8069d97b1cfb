#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "ir/kernel.h"
#include "ops/prim/max_pool/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

template <class T>
struct Params {
  const T* x;
  T* y;
  PoolGeometry g;
  int64_t packs, count;  // accesses of a pixel, and of y
};

// y[n, p, q, :] = the maximum over a window; not a number wins.
// grid: one thread for Pack channels of a result.  needs: C % Pack == 0, addresses aligned.
template <class T, int Pack>
__global__ __launch_bounds__(threads) void max_pool_pixels(const __grid_constant__ Params<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const PoolGeometry& g = p.g;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const Place at = place_of(i, g.p, g.q, p.packs);
  const int64_t top = at.n * g.h + at.row * g.stride, left = at.column * g.stride;
  const V* const corner = reinterpret_cast<const V*>(p.x) + (top * g.w + left) * p.packs + at.pack;
  Vec<float, Pack> most = floats_of(*corner);
  for (int64_t t = 1; t < g.window * g.window; ++t) {
    const auto v = floats_of(corner[(t / g.window * g.w + t % g.window) * p.packs]);
#pragma unroll
    for (int k = 0; k < Pack; ++k)
      if (v.v[k] > most.v[k] || v.v[k] != v.v[k]) most.v[k] = v.v[k];
  }
  reinterpret_cast<V*>(p.y)[i] = rounded_to<T>(most);
}

template <class T, int Pack>
void run(const PoolGeometry& g, const Call& c, CudaDevice& device) {
  const Params<T> p{.x = static_cast<const T*>(c.in[0]),
                    .y = static_cast<T*>(c.out[0]),
                    .g = g,
                    .packs = g.c / Pack,
                    .count = g.n * g.p * g.q * g.c / Pack};
  launch("max_pool_pixels", max_pool_pixels<T, Pack>,
         {.grid = blocks_for(p.count, threads), .block = threads}, p, device);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const PoolGeometry g = pool_geometry(s, s.as<ops::MaxPool>());
  return {.run = [g, packs = s.aligned, dtype = s.in[0].dtype, &device](const Call& c) {
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      packs&& g.c % wide<T> == 0 ? run<T, wide<T>>(g, c, of(device)) : run<T, 1>(g, c, of(device));
    });
  }};
}

}  // namespace

std::vector<Kernel> max_pool() {
  return {{.op = "max_pool",
           .name = "max_pool_pixels",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
