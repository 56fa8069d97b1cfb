// conv2d on CUDA: the general kernels, as GEMMs of windows and filters.
#include "backend/cuda/gemm/general/gemm.cuh"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_few_channels.h"
#include "ops/prim/conv2d/cuda_sm90.h"
#include "ops/prim/conv2d/cuda_windows.cuh"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::GemmTask, ebb::cuda::K, ebb::cuda::Plain, ebb::cuda::Windows;

// Predictions have few channels: narrow tiles.
using Product = ebb::cuda::Gemm<Windows, K::inner, Plain, K::inner, ebb::cuda::Narrow::columns>;

GemmTask task(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  GemmTask t{.m = g.n * g.out_h() * g.out_w(), .n = g.o, .k = g.kh * g.kw * g.c};
  t.out_rows = t.m;
  t.a = s.in[0].dtype;
  t.b = s.in[1].dtype;
  t.out = s.out[0].dtype;
  const Summands e = summands_of(s);
  if (e.bias) t.bias = s.in[*e.bias].dtype;
  if (e.residual) t.residual = s.in[*e.residual].dtype;
  t.residual_rows = e.rows;
  t.a_run = g.c;
  t.b_run = t.k;
  t.aligned = s.aligned;
  Product::describe(t);
  return t;
}

bool supports(const Signature& s, const Device&) {
  return is_sum_of_one_product(s) && ebb::cuda::gemm_supports(task(s));
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  return ebb::cuda::gemm_space(task(s), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
  const GemmTask t = task(s);
  const ebb::cuda::GemmPlan plan = ebb::cuda::gemm_plan(t, tune, device);
  const Plain filters{.outers = static_cast<int>(t.n), .inners = static_cast<int>(t.k)};
  const Product gemm(t, plan, windows_of(conv2d_geometry(s)), filters);
  const auto run = [gemm, e = summands_of(s), &device](const Call& c) {
    gemm.run(
        {c.in[0], c.in[1], address_of(e.bias, c), address_of(e.residual, c), c.out[0], c.workspace},
        device);
  };
  return {.workspace = plan.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> conv2d() {
  std::vector<Kernel> all;
  for (const auto& kernels : {conv2d_col2im(), conv2d_sm90(), conv2d_im2col()})
    all.insert(all.end(), kernels.begin(), kernels.end());
  all.push_back({.op = "conv2d",
                 .name = "conv2d_general",
                 .supports = supports,
                 .prepare = prepare,
                 .space = space,
                 .cost = roofline<40, 50>,
                 .family = "gemm_general"});
  return all;
}

}  // namespace ebb::ops::cuda
