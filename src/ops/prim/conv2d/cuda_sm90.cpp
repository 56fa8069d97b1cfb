// conv2d on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d/cuda_sm90.h"

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d();

namespace gemm = ebb::cuda::gemm;

gemm::Problem conv2d_sm90_problem(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  gemm::Problem p;
  p.form = gemm::Form::fprop;
  p.type = s.in[0].dtype;
  p.out = s.out[0].dtype;
  set_epilogue(p, s);
  p.m = g.n * g.out_h() * g.out_w();
  p.n = g.o;
  p.k = g.c;
  p.images = sm90_images(g);
  return p;
}

namespace {

struct Use {
  static gemm::Problem problem(const Signature& s) { return conv2d_sm90_problem(s); }
  static gemm::Kernels kernels(const gemm::Problem& p) { return conv2d_sm90_kernels(p.type); }
  static bool supports(const Signature& s) { return s.in[0].dtype == s.in[1].dtype; }
  static auto operands(const Signature& s) { return epilogue_operands(s); }
  static Program general(const Signature& s, Device& d) {
    return gemm::general_program(conv2d(), s, d);
  }
};

}  // namespace

std::vector<Kernel> conv2d_sm90() { return {gemm::op_kernel<Use>("conv2d", "conv2d_sm90")}; }

}  // namespace ebb::ops::cuda
