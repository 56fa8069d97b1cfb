// conv2d of images with few channels (pixels, latents; the patches of a transformer): its windows
// are written out as rows of a matrix (im2col), padded to whole 16-byte vectors, and multiplied on
// sm_90a. The general kernel gathers them element by element for every tile of the result.
#include "ops/prim/conv2d/cuda_few_channels.h"

#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/sm90/problem.h"
#include "base/round_up.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/roofline.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;
using ebb::ceil_div;

constexpr int threads = 256;
constexpr int64_t vector = 8;       // elements
constexpr int64_t longest = 128;    // row of the matrix
constexpr int64_t alignment = 256;  // of what lies in the workspace

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

// ---- the use ---------------------------------------------------------------------------------

int64_t inners(const ConvGeometry& g) { return g.kh * g.kw * g.c; }
int64_t padded(const ConvGeometry& g) { return ceil_div(inners(g), vector) * vector; }

gemm::Problem gemm_of(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  gemm::Problem p;
  p.type = s.in[0].dtype;
  p.out = s.out[0].dtype;
  set_epilogue(p, s);
  p.m = g.n * g.out_h() * g.out_w();
  p.n = g.o;
  p.k = padded(g);
  return p;
}

// The workspace: rows, filters, then that of the GEMM.
struct Places {
  int64_t filters = 0, gemm = 0;
};
Places places(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  const auto bytes = [&](int64_t rows) {
    return ceil_div(rows * padded(g) * size_of(s.in[0].dtype), alignment) * alignment;
  };
  const int64_t filters = bytes(g.n * g.out_h() * g.out_w());
  return {filters, filters + (padded(g) == inners(g) ? 0 : bytes(g.o))};
}

Params params_of(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  Params p = {};
  p.pixels = to_int(g.n * g.out_h() * g.out_w());
  p.inners = to_int(inners(g));
  p.vectors = to_int(padded(g) / vector);
  p.count = to_int((p.pixels + (padded(g) == inners(g) ? 0 : g.o)) * p.vectors);
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

struct Use {
  static bool supports(const Signature& s) {
    constexpr int64_t most = int64_t{1} << 28;  // bytes of workspace
    if (!is_sum_of_one_product(s)) return false;
    const ConvGeometry g = conv2d_geometry(s);
    return s.in[0].dtype == s.in[1].dtype && g.c % vector != 0 && inners(g) <= longest &&
           places(s).gemm <= most;
  }

  static gemm::Problem problem(const Signature& s) { return gemm_of(s); }

  static Program program(const Signature& s, const gemm::Prepared& product,
                         ebb::cuda::CudaDevice& device) {
    const auto run = [run_gemm = product.run, fixed = params_of(s), at = places(s),
                      find = epilogue_operands(s), &device](const Call& c) {
      auto* work = static_cast<char*>(c.workspace);
      const bool copies = at.gemm > at.filters;  // of the filters
      gemm::Operands o = find(c);
      o.a = work;
      if (copies) o.b = work + at.filters;
      o.workspace = work + at.gemm;
      Params p = fixed;
      p.x = static_cast<const uint16_t*>(c.in[0]);
      p.w = static_cast<const uint16_t*>(c.in[1]);
      p.rows = reinterpret_cast<uint4*>(work);
      p.filters = copies ? reinterpret_cast<uint4*>(work + at.filters) : nullptr;
      ebb::cuda::launch("im2col", im2col,
                        {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                        device);
      run_gemm(o);
    };
    return {.workspace = places(s).gemm + product.workspace, .run = run};
  }
};

}  // namespace

std::vector<Kernel> conv2d_im2col() {
  return {few_channels_kernel<Use>("conv2d_im2col", roofline<50, 60>)};
}

}  // namespace ebb::ops::cuda
