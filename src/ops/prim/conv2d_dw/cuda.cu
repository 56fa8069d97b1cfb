// conv2d_dw on CUDA: the general kernels. dw[o, (r,s,c)] sums dy[pixel, o] * window[pixel,
// (r,s,c)].
#include "backend/cuda/gemm/general/gemm.cuh"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_windows.cuh"
#include "ops/prim/conv2d_dw/cuda_sm90.h"
#include "ops/prim/conv2d_dw/op.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::GemmTask, ebb::cuda::K, ebb::cuda::Plain, ebb::cuda::Windows;

// Images and predictions have few channels: narrow tiles.
using Product = ebb::cuda::Gemm<Plain, K::outer, Windows, K::outer, ebb::cuda::Narrow::both>;

GemmTask task(const Signature& s) {
  const ConvGeometry g = conv2d_dw_geometry(s);
  GemmTask t{.m = g.o, .n = g.kh * g.kw * g.c, .k = g.n * g.out_h() * g.out_w()};
  t.out_rows = t.m;
  t.a = s.in[1].dtype;
  t.b = s.in[0].dtype;
  t.out = s.out[0].dtype;
  t.a_run = g.o;
  t.b_run = g.c;
  t.aligned = s.aligned;
  Product::describe(t);
  return t;
}

bool supports(const Signature& s, const Device&) { return ebb::cuda::gemm_supports(task(s)); }

std::vector<Tune> space(const Signature& s, const Device& d) {
  return ebb::cuda::gemm_space(task(s), ebb::cuda::of(d));
}

// db. The workspace is free again when the GEMM has run.
std::function<void(const Call&)> bias_gradient(const GemmTask& t, ebb::cuda::CudaDevice& device) {
  return [t, &device](const Call& c) {
    if (c.out.size() < 2) return;
    ebb::cuda::column_sums({.x = c.in[1],
                            .dtype = t.a,
                            .rows = t.k,
                            .cols = t.m,
                            .workspace = static_cast<float*>(c.workspace),
                            .out = static_cast<float*>(c.out[1]),
                            .aligned = t.aligned},
                           device);
  };
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
  const GemmTask t = task(s);
  ebb::cuda::GemmPlan plan = ebb::cuda::gemm_plan(t, tune, device);
  if (s.out.size() == 2)
    plan.workspace = std::max(plan.workspace,
                              ebb::cuda::column_sum_partials(t.k, t.m, device) * t.m * int64_t{4});
  const Plain dy{.outers = static_cast<int>(t.k), .inners = static_cast<int>(t.m)};
  const Product gemm(t, plan, dy, windows_of(conv2d_dw_geometry(s)));
  const auto run = [gemm, db = bias_gradient(t, device), &device](const Call& c) {
    gemm.run({.a = c.in[1], .b = c.in[0], .out = c.out[0], .workspace = c.workspace}, device);
    db(c);
  };
  return {.workspace = plan.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dw() {
  std::vector<Kernel> all = conv2d_dw_sm90();
  for (Kernel& k : conv2d_dw_few_channels()) all.push_back(std::move(k));
  all.push_back({.op = "conv2d_dw",
                 .name = "conv2d_dw_general",
                 .supports = supports,
                 .prepare = prepare,
                 .space = space,
                 .cost = roofline<40, 50>,
                 .family = "gemm_general"});
  return all;
}

}  // namespace ebb::ops::cuda
