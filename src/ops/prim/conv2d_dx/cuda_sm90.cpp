// conv2d_dx on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dx/cuda_sm90.h"

#include "backend/cuda/gemm_sm90_op.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_dx();

namespace {

namespace gemm = ebb::cuda::gemm;

struct Use {
  static gemm::Problem problem(const Signature& s) {
    const ConvGeometry g = conv2d_dx_geometry(s);
    gemm::Problem p;
    p.form = gemm::Form::dgrad;
    p.type = s.in[0].dtype;
    p.out = s.out[0].dtype;
    set_epilogue(p, s);
    p.m = g.n * g.h * g.w;
    p.n = g.c;
    p.k = g.o;
    p.images = sm90_rotated_images(g);
    return p;
  }

  static gemm::Kernels kernels(const gemm::Problem& p) { return conv2d_dx_sm90_kernels(p.type); }
  static bool serves(const Signature& s) {
    constexpr int64_t stride = 1;  // others are left to the general kernel
    return s.as<Conv2dDx>().stride == stride && s.in[0].dtype == s.in[1].dtype;
  }
  static auto operands(const Signature& s) { return epilogue_operands(s); }
  static Program general(const Signature& s, Device& d) {
    return gemm::general_program(conv2d_dx(), s, d);
  }
};

}  // namespace

std::vector<Kernel> conv2d_dx_sm90() {
  return {gemm::op_kernel<Use>("conv2d_dx", "conv2d_dx_sm90")};
}

}  // namespace ebb::ops::cuda
