#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "ir/kernel.h"
#include "ops/prim/max_pool_grad/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

template <class T>
struct Params {
  const T *x, *dy;
  T* dx;
  PoolGeometry g;
  int64_t packs, count;  // accesses of a pixel; threads
};

// Which of a window's pixels is the first maximum, counted by rows, for each of Pack channels. The
// first one that is not a number wins. `corner` and `packs` are in accesses.
template <class T, int Pack>
__device__ __forceinline__ Vec<int, Pack> first_maxima(const PoolGeometry& g,
                                                       const Vec<T, Pack>* corner, int64_t packs) {
  Vec<float, Pack> most = floats_of(*corner);
  Vec<int, Pack> where = {};
  for (int t = 1; t < g.window * g.window; ++t) {
    const auto v = floats_of(corner[(t / g.window * g.w + t % g.window) * packs]);
#pragma unroll
    for (int k = 0; k < Pack; ++k) {
      const float m = most.v[k];
      const bool larger = (v.v[k] > m || v.v[k] != v.v[k]) && m == m;
      where.v[k] = larger ? t : where.v[k];
      most.v[k] = larger ? v.v[k] : m;
    }
  }
  return where;
}

// Windows side by side: a window and the gap behind it are one cell, whose dx one thread writes.
// grid: one thread for Pack channels of a cell.  needs: stride >= window, addresses aligned.
template <class T, int Pack>
__global__ __launch_bounds__(threads) void max_pool_grad_cells(
    const __grid_constant__ Params<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const PoolGeometry& g = p.g;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const int64_t rows = (g.h + g.stride - 1) / g.stride, columns = (g.w + g.stride - 1) / g.stride;
  const Place at = place_of(i, rows, columns, p.packs);
  const int64_t top = at.row * g.stride, left = at.column * g.stride;
  const int64_t corner = ((at.n * g.h + top) * g.w + left) * p.packs + at.pack;
  Vec<int, Pack> where;
  V dy;
#pragma unroll
  for (int k = 0; k < Pack; ++k) where.v[k] = -1;
  if (at.row < g.p && at.column < g.q) {
    where = first_maxima(g, reinterpret_cast<const V*>(p.x) + corner, p.packs);
    dy = reinterpret_cast<const V*>(
        p.dy)[((at.n * g.p + at.row) * g.q + at.column) * p.packs + at.pack];
  }
  for (int r = 0; r < g.stride && top + r < g.h; ++r)
    for (int s = 0; s < g.stride && left + s < g.w; ++s) {
      const int t = r < g.window && s < g.window ? r * static_cast<int>(g.window) + s : -2;
      V dx;
#pragma unroll
      for (int k = 0; k < Pack; ++k) dx.v[k] = where.v[k] == t ? dy.v[k] : from_float<T>(0.f);
      reinterpret_cast<V*>(p.dx)[corner + (r * g.w + s) * p.packs] = dx;
    }
}

// Windows that overlap: every pixel sums over the windows that hold it, in their order, in f32.
// grid: one thread for Pack channels of a pixel.  needs: addresses aligned.
template <class T, int Pack>
__global__ __launch_bounds__(threads) void max_pool_grad_pixels(
    const __grid_constant__ Params<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const PoolGeometry& g = p.g;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const Place at = place_of(i, g.h, g.w, p.packs);
  const auto first = [&](int64_t v) { return v < g.window ? 0 : (v - g.window) / g.stride + 1; };
  Vec<float, Pack> sum = {};
  for (int64_t r = first(at.row); r < g.p && r * g.stride <= at.row; ++r)
    for (int64_t s = first(at.column); s < g.q && s * g.stride <= at.column; ++s) {
      const int64_t corner = ((at.n * g.h + r * g.stride) * g.w + s * g.stride) * p.packs + at.pack;
      const auto where = first_maxima(g, reinterpret_cast<const V*>(p.x) + corner, p.packs);
      const int64_t t = (at.row - r * g.stride) * g.window + at.column - s * g.stride;
      const auto dy = floats_of(
          reinterpret_cast<const V*>(p.dy)[((at.n * g.p + r) * g.q + s) * p.packs + at.pack]);
#pragma unroll
      for (int k = 0; k < Pack; ++k) sum.v[k] += where.v[k] == t ? dy.v[k] : 0.f;
    }
  reinterpret_cast<V*>(p.dx)[i] = rounded_to<T>(sum);
}

template <class T, int Pack>
void run(const PoolGeometry& g, const Call& c, CudaDevice& device) {
  const bool cells = g.stride >= g.window;
  const int64_t side = cells ? g.stride : 1;
  Params<T> p{.x = static_cast<const T*>(c.in[0]),
              .dy = static_cast<const T*>(c.in[1]),
              .dx = static_cast<T*>(c.out[0]),
              .g = g,
              .packs = g.c / Pack};
  p.count = g.n * ((g.h + side - 1) / side) * ((g.w + side - 1) / side) * p.packs;
  launch("max_pool_grad", cells ? max_pool_grad_cells<T, Pack> : max_pool_grad_pixels<T, Pack>,
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

std::vector<Kernel> max_pool_grad() {
  return {{.op = "max_pool_grad",
           .name = "max_pool_grad",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
