// conv2d_dw on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dw/cuda_sm90.h"

#include <algorithm>

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
  p.row_sums = s.out.size() == 2;  // db
  p.images = sm90_images(g);
  return p;
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
  const gemm::Prepared product =
      gemm::prepare(p, conv2d_dw_sm90_kernels(p.type), tune, ebb::cuda::of(d));
  const Program general = gemm::general_program(conv2d_dw(), s, d);
  const auto run = [product, general](const Call& c) {
    const gemm::Operands o{.a = c.in[1],
                           .b = c.in[0],
                           .out = c.out[0],
                           .row_sums = c.out.size() == 2 ? c.out[1] : nullptr,
                           .workspace = c.workspace};
    product.takes(o) ? product.run(o) : general.run(c);
  };
  return {.workspace = std::max(product.workspace, general.workspace), .run = run};
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
