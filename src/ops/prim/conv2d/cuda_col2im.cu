// conv2d with few outputs (the pixels or latents that a network ends with): a GEMM of every tap
// with every pixel on sm_90a, whose results are then gathered tap by tap. An implicit GEMM would
// read each pixel once for every tap, for a tile of which few columns are results.
#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/general/common.cuh"
#include "backend/cuda/gemm/sm90/problem.h"
#include "backend/cuda/kit/elements.cuh"
#include "base/round_up.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_few_channels.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;
using ebb::ceil_div;

constexpr int threads = 256;
constexpr int64_t most_rows = 64;   // taps of all outputs: rows of a tile
constexpr int64_t alignment = 256;  // of what lies in the workspace

struct Params {
  const float* products;  // [o, taps, pixels of x]
  const void* bias;
  void* y;
  DType bias_type;
  int count, pixels;  // of y, and of x
  int o, kh, kw, h, w, out_h, out_w, top, left;
};

// grid: one thread a pixel of y.
template <class T>
__global__ void __launch_bounds__(threads) gather_taps(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (i >= p.count) return;
  const int q = i % p.out_w - p.left, above = i / p.out_w;
  const int top = above % p.out_h - p.top, image = above / p.out_h * p.h;
  for (int o = 0; o < p.o; ++o) {
    float sum = p.bias == nullptr ? 0 : ebb::cuda::load_float(p.bias, p.bias_type, o);
    const float* products = p.products + int64_t{o} * p.kh * p.kw * p.pixels;
    for (int r = 0; r < p.kh; ++r)
      for (int s = 0; s < p.kw; ++s, products += p.pixels) {
        const int row = top + r, column = q + s;
        if (row >= 0 && row < p.h && column >= 0 && column < p.w)
          sum += products[(image + row) * p.w + column];
      }
    static_cast<T*>(p.y)[int64_t{i} * p.o + o] = ebb::cuda::from_float<T>(sum);
  }
}

// ---- the use ---------------------------------------------------------------------------------

gemm::Problem gemm_of(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  gemm::Problem p;
  p.type = s.in[0].dtype;
  p.out = DType::f32;
  p.m = g.o * g.kh * g.kw;
  p.n = g.n * g.h * g.w;
  p.k = g.c;
  return p;
}

int64_t products_bytes(const gemm::Problem& p) {
  return ceil_div(p.m * p.n * size_of(DType::f32), alignment) * alignment;
}

Params params_of(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  const Summands e = summands_of(s);
  Params p = {};
  p.bias_type = e.bias ? s.in[*e.bias].dtype : DType::f32;
  p.count = to_int(g.n * g.out_h() * g.out_w());
  p.pixels = to_int(g.n * g.h * g.w);
  p.o = to_int(g.o);
  p.kh = to_int(g.kh);
  p.kw = to_int(g.kw);
  p.h = to_int(g.h);
  p.w = to_int(g.w);
  p.out_h = to_int(g.out_h());
  p.out_w = to_int(g.out_w());
  p.top = to_int(g.top);
  p.left = to_int(g.left);
  return p;
}

struct Use {
  static bool supports(const Signature& s) {
    constexpr int64_t most = int64_t{1} << 28;  // bytes of workspace
    if (!is_sum_of_one_product(s)) return false;
    const ConvGeometry g = conv2d_geometry(s);
    const gemm::Problem p = gemm_of(s);
    return s.in[0].dtype == s.in[1].dtype && g.stride == 1 && g.kh * g.kw > 1 && p.m <= most_rows &&
           !summands_of(s).residual && products_bytes(p) <= most;
  }

  static gemm::Problem problem(const Signature& s) { return gemm_of(s); }

  static Program program(const Signature& s, const gemm::Prepared& product,
                         ebb::cuda::CudaDevice& device) {
    const int64_t bytes = products_bytes(gemm_of(s));
    const auto run = [run_gemm = product.run, bytes, fixed = params_of(s),
                      bias = summands_of(s).bias, out = s.out[0].dtype, &device](const Call& c) {
      auto* work = static_cast<char*>(c.workspace);
      const gemm::Operands o{.a = c.in[1], .b = c.in[0], .out = work, .workspace = work + bytes};
      run_gemm(o);
      Params now = fixed;
      now.products = reinterpret_cast<const float*>(work);
      now.bias = address_of(bias, c);
      now.y = c.out[0];
      ebb::cuda::visit_float(out, [&](auto zero) {
        ebb::cuda::launch("gather_taps", gather_taps<decltype(zero)>,
                          {.grid = ebb::cuda::blocks_for(now.count, threads), .block = threads},
                          now, device);
      });
    };
    return {.workspace = bytes + product.workspace, .run = run};
  }
};

}  // namespace

std::vector<Kernel> conv2d_col2im() {
  return {few_channels_kernel<Use>("conv2d", "conv2d_col2im", roofline<75, 85>)};
}

}  // namespace ebb::ops::cuda
