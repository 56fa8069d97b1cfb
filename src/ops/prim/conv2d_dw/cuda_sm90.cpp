// conv2d_dw on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dw/cuda_sm90.h"

#include <algorithm>

#include "backend/cuda/mma_plan.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d_dw/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_dw();

namespace {

namespace gemm = ebb::cuda::gemm;

gemm::Problem problem(const Signature& s) {
  const ConvGeometry g = conv2d_dw_geometry(s);
  gemm::Problem p;
  p.form = gemm::Form::wgrad;
  p.type = s.in[0].dtype;
  p.out = DType::f32;
  p.m = g.o;
  p.n = g.kh * g.kw * g.c;
  p.k = g.n * g.out_h() * g.out_w();
  p.images = sm90_images(g);
  return p;
}

// db: the sums of dy's columns.
std::function<void(const Call&)> bias_gradient(const gemm::Problem& p,
                                               ebb::cuda::CudaDevice& device) {
  return [p, &device](const Call& c) {
    ebb::cuda::column_sums({.x = c.in[1],
                            .dtype = p.type,
                            .rows = p.k,
                            .cols = p.m,
                            .workspace = static_cast<float*>(c.workspace),
                            .out = static_cast<float*>(c.out[1])},
                           device);
  };
}

bool supports(const Signature& s, const Device& d) {
  return gemm::supports(problem(s), ebb::cuda::of(d));
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  const gemm::Problem p = problem(s);
  return gemm::tunes(p, conv2d_dw_sm90_kernels(p.type), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  const gemm::Problem p = problem(s);
  ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
  const gemm::Prepared product = gemm::prepare(p, conv2d_dw_sm90_kernels(p.type), tune, device);
  const Program general = gemm::general_program(conv2d_dw(), s, d);
  const bool bias = s.out.size() == 2;
  const auto db = bias_gradient(p, device);
  const int64_t sums = bias ? ebb::cuda::column_sum_parts(p.k, p.m, device) * p.m * 4 : 0;
  const auto run = [product, general, bias, db](const Call& c) {
    const gemm::Operands o{c.in[1], c.in[0], nullptr, c.out[0], c.workspace};
    if (!product.takes(o)) return general.run(c);
    product.run(o);
    if (bias) db(c);  // the workspace is free again
  };
  return {.workspace = std::max({product.workspace, general.workspace, sums}), .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dw_sm90() {
  return {{.op = "conv2d_dw",
           .name = "conv2d_dw_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space}};
}

}  // namespace ebb::ops::cuda
