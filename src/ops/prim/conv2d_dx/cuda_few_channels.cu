// conv2d_dx of predictions with few channels, of stride 1, on sm_90a: dy's windows are written out
// as the rows of a matrix (im2col) and multiplied with the rotated filters. TMA cannot read dy.
#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_few_channels.h"
#include "ops/prim/conv2d/cuda_window_rows.h"
#include "ops/prim/conv2d_dx/cuda_sm90.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;

constexpr int threads = 256;

struct Params {
  const uint16_t* w;  // [o, taps, c], of 16 bits
  uint16_t* filters;  // [c, padded]: rotated taps of all o, then zeros
  int count, padded, c, o, taps;
};

// grid: one thread an element of the filters.
__global__ void __launch_bounds__(threads) rotate_filters(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (i >= p.count) return;
  const int inner = i % p.padded, tap = p.taps - 1 - inner / p.o;
  p.filters[i] = tap >= 0 ? p.w[(inner % p.o * p.taps + tap) * p.c + i / p.padded] : uint16_t{0};
}

WindowRows windows_of(const Signature& s) { return WindowRows(rotated(conv2d_dx_geometry(s))); }

Params params_of(const Signature& s) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  Params p = {};
  p.padded = to_int(windows_of(s).padded());
  p.count = to_int(g.c) * p.padded;
  p.c = to_int(g.c);
  p.o = to_int(g.o);
  p.taps = to_int(g.kh * g.kw);
  return p;
}

// The workspace: rows, filters, then that of the GEMM.
struct Places {
  int64_t filters = 0, gemm = 0;
};
Places places(const Signature& s) {
  const WindowRows windows = windows_of(s);
  const int64_t filters = windows.bytes(windows.pixels());
  return {filters, filters + windows.bytes(conv2d_dx_geometry(s).c)};
}

struct Use {
  static bool supports(const Signature& s) {
    constexpr int64_t most = int64_t{1} << 28;  // bytes of workspace
    const ConvGeometry g = conv2d_dx_geometry(s);
    return epilogue_form(s) && s.in[0].dtype == s.in[1].dtype && g.stride == 1 &&
           has_few_channels(g.o) && windows_of(s).row() <= longest_window && places(s).gemm <= most;
  }

  static gemm::Problem problem(const Signature& s) {
    const WindowRows windows = windows_of(s);
    gemm::Problem p;
    p.type = s.in[0].dtype;
    p.out = s.out[0].dtype;
    set_epilogue(p, s);
    p.m = windows.pixels();
    p.n = conv2d_dx_geometry(s).c;
    p.k = windows.padded();
    return p;
  }

  static Program program(const Signature& s, const gemm::Prepared& product,
                         ebb::cuda::CudaDevice& device) {
    const auto run = [run_gemm = product.run, windows = windows_of(s), at = places(s),
                      fixed = params_of(s), find = epilogue_operands(s), &device](const Call& c) {
      auto* work = static_cast<char*>(c.workspace);
      windows.write(c.in[0], work, nullptr, nullptr, device);
      Params p = fixed;
      p.w = static_cast<const uint16_t*>(c.in[1]);
      p.filters = reinterpret_cast<uint16_t*>(work + at.filters);
      ebb::cuda::launch("rotate_filters", rotate_filters,
                        {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                        device);
      gemm::Operands o = find(c);
      o.a = work;
      o.b = work + at.filters;
      o.workspace = work + at.gemm;
      run_gemm(o);
    };
    return {.workspace = places(s).gemm + product.workspace, .run = run};
  }
};

}  // namespace

std::vector<Kernel> conv2d_dx_few_channels() {
  return {few_channels_kernel<Use>("conv2d_dx", "conv2d_dx_few_channels", roofline<50, 60>)};
}

}  // namespace ebb::ops::cuda
