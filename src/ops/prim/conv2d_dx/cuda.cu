// conv2d_dx on CUDA: the general kernels. Each phase of the pixels is a convolution of dy.
#include "backend/cuda/gemm/general/gemm.cuh"
#include "base/round_up.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d_dx/cuda_sm90.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cuda {
namespace {

using ebb::ceil_div, ebb::cuda::DxTaps, ebb::cuda::DxWindows, ebb::FastDiv, ebb::cuda::GemmTask,
    ebb::cuda::K;

using Product = ebb::cuda::Gemm<DxWindows, K::inner, DxTaps, K::outer>;

int to_int(int64_t i) { return static_cast<int>(i); }

// The largest of the phases, which are the batch.
GemmTask task(const Signature& s) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  GemmTask t{.m = g.n * ceil_div(g.h, g.stride) * ceil_div(g.w, g.stride),
             .n = g.c,
             .k = ceil_div(g.kh, g.stride) * ceil_div(g.kw, g.stride) * g.o,
             .batch = g.stride * g.stride};
  t.out_rows = g.n * g.h * g.w;
  t.a = s.in[0].dtype;
  t.b = s.in[1].dtype;
  t.out = s.out[0].dtype;
  const Summands e = summands_of(s);
  if (e.bias) t.bias = s.in[*e.bias].dtype;
  if (e.residual) t.residual = s.in[*e.residual].dtype;
  t.residual_rows = e.rows;
  t.a_run = g.o;
  t.b_run = g.c;
  t.aligned = s.aligned;
  Product::describe(t);
  return t;
}

ebb::cuda::PhaseGrid grid_of(const ConvGeometry& g) {
  return {.stride = to_int(g.stride),
          .top = to_int(g.top),
          .left = to_int(g.left),
          .h = to_int(g.h),
          .w = to_int(g.w),
          .kh = to_int(g.kh),
          .kw = to_int(g.kw)};
}

DxWindows windows_of_dy(const ConvGeometry& g) {
  DxWindows v;
  v.dy.h = to_int(g.out_h());
  v.dy.w = to_int(g.out_w());
  v.dy.c = to_int(g.o);
  v.dy.turn = -1;
  v.dy.channels = FastDiv(g.o);
  v.grid = grid_of(g);
  v.images = to_int(g.n);
  v.first = v.phase(0);
  return v;
}

DxTaps taps_of(const ConvGeometry& g) {
  DxTaps v;
  v.w.inners = to_int(g.c);
  v.w.stride = to_int(g.stride);
  v.w.kw = to_int(g.kw);
  v.w.filter_size = g.kh * g.kw * g.c;
  v.w.filters = FastDiv(g.o);
  v.grid = grid_of(g);
  v.first = v.phase(0);
  return v;
}

bool supports(const Signature& s, const Device&) { return ebb::cuda::gemm_supports(task(s)); }

std::vector<Tune> space(const Signature& s, const Device& d) {
  return ebb::cuda::gemm_space(task(s), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
  const GemmTask t = task(s);
  const ConvGeometry g = conv2d_dx_geometry(s);
  const ebb::cuda::GemmPlan plan = ebb::cuda::gemm_plan(t, tune, device);
  const Product gemm(t, plan, windows_of_dy(g), taps_of(g));
  const auto run = [gemm, e = summands_of(s), &device](const Call& c) {
    gemm.run(
        {c.in[0], c.in[1], address_of(e.bias, c), address_of(e.residual, c), c.out[0], c.workspace},
        device);
  };
  return {.workspace = plan.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dx() {
  std::vector<Kernel> all = conv2d_dx_sm90();
  for (Kernel& k : conv2d_dx_few_channels()) all.push_back(std::move(k));
  all.push_back({.op = "conv2d_dx",
                 .name = "conv2d_dx_general",
                 .supports = supports,
                 .prepare = prepare,
                 .space = space,
                 .cost = roofline<40, 50>,
                 .family = "gemm_general"});
  return all;
}

}  // namespace ebb::ops::cuda
