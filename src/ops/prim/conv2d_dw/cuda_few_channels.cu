// conv2d_dw with few channels in (pixels, latents) or out (predictions), on sm_90a: the windows of
// the side that has few are written out as the rows of a matrix (im2col), which a GEMM multiplies
// with the other side over all pixels; its small result is put in order. TMA cannot read either
// side of the general form, whose kernel gathers the windows element by element.
#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/prologue.cuh"
#include "base/round_up.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_few_channels.h"
#include "ops/prim/conv2d/cuda_window_rows.h"
#include "ops/prim/conv2d_dw/cuda_sm90.h"
#include "ops/prim/conv2d_dw/op.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;

constexpr int threads = 256;
constexpr int64_t alignment = 256;  // of what lies in the workspace

bool few_in(const ConvGeometry& g) { return has_few_channels(g.c); }

// The convolution whose windows are written out.
ConvGeometry windows_of(const ConvGeometry& g) { return few_in(g) ? g : ops::rotated(g); }

// Its tap under which every pixel of dy comes once: where the sum over pixels is db. Few out.
int64_t tap_of_all(const ConvGeometry& t) { return t.top * t.kw + t.left; }

// ---- the result in order -----------------------------------------------------------------------

struct Params {
  const float *from, *sums;  // [o, pitch] or, rotated, [taps, o, c]; sums: [taps, o], null: none
  float *dw, *db;
  int count, outputs;  // elements of dw; of db, behind them
  int inners, pitch;   // elements of a filter; from one to the next
  int c, o, taps;
  int of_all;  // tap_of_all()
  bool rotated;
};

// grid: one thread an element of dw, then of db.
__global__ void __launch_bounds__(threads) dw_in_order(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (i >= p.count + p.outputs) return;
  if (i >= p.count) {
    p.db[i - p.count] = p.sums[p.of_all * p.o + i - p.count];
    return;
  }
  const int o = i / p.inners, inner = i % p.inners;
  const int tap = p.taps - 1 - inner / p.c;
  p.dw[i] = p.rotated ? p.from[(tap * p.o + o) * p.c + inner % p.c] : p.from[o * p.pitch + inner];
}

Params params_of(const Signature& s) {
  const ConvGeometry g = conv2d_dw_geometry(s);
  const WindowRows windows(windows_of(g));
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  Params p = {};
  p.count = to_int(g.o * g.kh * g.kw * g.c);
  p.outputs = !few_in(g) && s.out.size() == 2 ? to_int(g.o) : 0;
  p.inners = to_int(g.kh * g.kw * g.c);
  p.pitch = to_int(windows.padded());
  p.c = to_int(g.c);
  p.o = to_int(g.o);
  p.taps = to_int(g.kh * g.kw);
  p.of_all = few_in(g) ? 0 : to_int(tap_of_all(windows_of(g)));
  p.rotated = !few_in(g);
  return p;
}

// ---- the use -----------------------------------------------------------------------------------

// The workspace: rows, the GEMM's result and its sums, then what the GEMM takes.
struct Places {
  int64_t result = 0, sums = 0, gemm = 0;
};
Places places(const Signature& s) {
  const ConvGeometry g = conv2d_dw_geometry(s);
  const WindowRows windows(windows_of(g));
  const auto behind = [](int64_t bytes) { return rounded_up(bytes, alignment); };
  Places at;
  at.result = windows.bytes(windows.pixels());
  at.sums = at.result + behind(windows.padded() * (few_in(g) ? g.o : g.c) * 4);
  at.gemm = at.sums + behind(windows.padded() * 4);
  return at;
}

// All of dy lies under one tap of the rotated filter.
bool sums_all(const ConvGeometry& t) {
  return t.top >= 0 && t.left >= 0 && t.top < t.kh && t.left < t.kw && t.h <= t.out_h() &&
         t.w <= t.out_w();
}

struct Use {
  static bool supports(const Signature& s) {
    constexpr int64_t most = int64_t{1} << 28;  // bytes of workspace
    const ConvGeometry g = conv2d_dw_geometry(s);
    if (has_few_channels(g.c) == has_few_channels(g.o)) return false;
    if (!few_in(g) && (g.stride != 1 || !sums_all(windows_of(g)))) return false;
    return WindowRows(windows_of(g)).row() <= longest_window && places(s).gemm <= most;
  }

  static gemm::Problem problem(const Signature& s) {
    const ConvGeometry g = conv2d_dw_geometry(s);
    const WindowRows windows(windows_of(g));
    gemm::Problem p;
    p.form = gemm::Form::tn;
    p.type = s.in[0].dtype;
    p.out = DType::f32;
    p.m = few_in(g) ? g.o : windows.padded();
    p.n = few_in(g) ? windows.padded() : g.c;
    p.k = windows.pixels();
    p.row_sums = s.out.size() == 2;
    return p;
  }

  static Program program(const Signature& s, const gemm::Prepared& product,
                         ebb::cuda::CudaDevice& device) {
    const auto run = [run_gemm = product.run,
                      windows = WindowRows(windows_of(conv2d_dw_geometry(s))), at = places(s),
                      fixed = params_of(s), &device](const Call& c) {
      auto* work = static_cast<char*>(c.workspace);
      const void *x = c.in[0], *dy = c.in[1];
      windows.write(fixed.rotated ? dy : x, work, nullptr, nullptr, device);
      gemm::Operands o{.a = fixed.rotated ? work : dy,
                       .b = fixed.rotated ? x : work,
                       .out = work + at.result,
                       .workspace = work + at.gemm};
      if (c.out.size() == 2) o.row_sums = fixed.rotated ? work + at.sums : c.out[1];
      run_gemm(o);
      Params p = fixed;
      p.from = reinterpret_cast<const float*>(work + at.result);
      p.sums = reinterpret_cast<const float*>(work + at.sums);
      p.dw = static_cast<float*>(c.out[0]);
      p.db = p.outputs > 0 ? static_cast<float*>(c.out[1]) : nullptr;
      ebb::cuda::launch(
          "dw_in_order", dw_in_order,
          {.grid = ebb::cuda::blocks_for(p.count + p.outputs, threads), .block = threads}, p,
          device);
    };
    return {.workspace = places(s).gemm + product.workspace, .run = run};
  }
};

}  // namespace

std::vector<Kernel> conv2d_dw_few_channels() {
  return {few_channels_kernel<Use>("conv2d_dw", "conv2d_dw_few_channels", roofline<50, 60>)};
}

}  // namespace ebb::ops::cuda
