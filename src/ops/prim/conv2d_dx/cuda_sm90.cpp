// conv2d_dx on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dx/cuda_sm90.h"

#include <algorithm>

#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_dx();

namespace {

namespace gemm = ebb::cuda::gemm;

gemm::Problem problem(const Signature& s) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  gemm::Problem p;
  p.form = gemm::Form::dgrad;
  p.type = s.in[0].dtype;
  p.out = s.out[0].dtype;
  p.m = g.n * g.h * g.w;
  set_epilogue(p, s);
  p.n = g.c;
  p.k = g.o;
  p.images = sm90_turned_images(g);
  return p;
}

bool supports(const Signature& s, const Device& d) {
  constexpr int64_t stride = 1;  // others are left to the general kernel
  return s.as<Conv2dDx>().stride == stride && s.in[0].dtype == s.in[1].dtype &&
         gemm::supports(problem(s), ebb::cuda::of(d));
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  const gemm::Problem p = problem(s);
  return gemm::tunes(p, conv2d_dx_sm90_kernels(p.type), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  const gemm::Problem p = problem(s);
  const gemm::Prepared product =
      gemm::prepare(p, conv2d_dx_sm90_kernels(p.type), tune, ebb::cuda::of(d));
  const Program general = gemm::general_program(conv2d_dx(), s, d);
  const auto run = [product, general, e = epilogue_of(s)](const Call& c) {
    const gemm::Operands o{.a = c.in[0],
                           .b = c.in[1],
                           .addend = address_of(e.addend, c),
                           .out = c.out[0],
                           .workspace = c.workspace};
    product.takes(o) ? product.run(o) : general.run(c);
  };
  return {.workspace = std::max(product.workspace, general.workspace), .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dx_sm90() {
  return {{.op = "conv2d_dx",
           .name = "conv2d_dx_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space}};
}

}  // namespace ebb::ops::cuda
