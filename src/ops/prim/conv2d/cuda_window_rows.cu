#include "ops/prim/conv2d/cuda_window_rows.h"

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"

namespace ebb::ops::cuda {

namespace {

constexpr int threads = 256;

struct Params {
  const uint16_t *x, *w;  // of 16 bits, whichever
  uint4 *rows, *filters;  // filters: null where they are whole vectors as they are
  int pixels, count;      // rows; and vectors in all
  int vectors, inners;    // of a row; elements of it
  int h, w_, c, kw, out_h, out_w, stride, top, left;
};

__device__ uint4 pack(const uint16_t (&v)[8]) {
  const auto two = [&](int i) { return uint32_t{v[i]} | uint32_t{v[i + 1]} << 16; };
  return {two(0), two(2), two(4), two(6)};
}

// A vector of a row: elements (r, s, channel) of the window of a pixel, in order; zeros outside of
// the image and behind the last.
__device__ uint4 window_vector(const Params& p, int pixel, int first) {
  const int q = pixel % p.out_w, above = pixel / p.out_w;
  const int top = above % p.out_h * p.stride - p.top, left = q * p.stride - p.left;
  const uint16_t* image = p.x + int64_t{above / p.out_h} * p.h * p.w_ * p.c;
  int channel = first % p.c, s = first / p.c % p.kw, r = first / p.c / p.kw;
  uint16_t v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = top + r, column = left + s;
    const bool inside =
        first + i < p.inners && row >= 0 && row < p.h && column >= 0 && column < p.w_;
    v[i] = inside ? image[(int64_t{row} * p.w_ + column) * p.c + channel] : uint16_t{0};
    if (++channel < p.c) continue;
    channel = 0;
    if (++s < p.kw) continue;
    s = 0;
    ++r;
  }
  return pack(v);
}

// grid: one thread a vector, of the windows and then of the filters.
__global__ void __launch_bounds__(threads) im2col(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (i >= p.count) return;
  const int row = i / p.vectors, first = i % p.vectors * 8;
  if (row < p.pixels) {
    p.rows[i] = window_vector(p, row, first);
    return;
  }
  const uint16_t* filter = p.w + int64_t{row - p.pixels} * p.inners;
  uint16_t v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = first + k < p.inners ? filter[first + k] : uint16_t{0};
  p.filters[i - p.pixels * p.vectors] = pack(v);
}

Params params_of(const ConvGeometry& g, const WindowRows& rows, bool filters) {
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  Params p = {};
  p.pixels = to_int(rows.pixels());
  p.inners = to_int(rows.row());
  p.vectors = to_int(rows.padded() / 8);
  p.count = to_int((p.pixels + (filters ? g.o : 0)) * p.vectors);
  p.h = to_int(g.h);
  p.w_ = to_int(g.w);
  p.c = to_int(g.c);
  p.kw = to_int(g.kw);
  p.out_h = to_int(g.out_h());
  p.out_w = to_int(g.out_w());
  p.stride = to_int(g.stride);
  p.top = to_int(g.top);
  p.left = to_int(g.left);
  return p;
}

}  // namespace

void WindowRows::write(const void* x, void* rows, const void* w, void* filters,
                       ebb::cuda::CudaDevice& device) const {
  Params p = params_of(g_, *this, filters != nullptr);
  p.x = static_cast<const uint16_t*>(x);
  p.w = static_cast<const uint16_t*>(w);
  p.rows = static_cast<uint4*>(rows);
  p.filters = static_cast<uint4*>(filters);
  ebb::cuda::launch("im2col", im2col,
                    {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p, device);
}

}  // namespace ebb::ops::cuda
