// conv2d_dx on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dx/cuda_sm90.h"

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

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
    if (g.stride == 1) {
      p.images = sm90_images(rotated(g));
      return p;
    }
    p.form = gemm::Form::phases;
    p.m /= g.stride * g.stride;
    p.batch = g.stride * g.stride;
    p.images = sm90_phase_images(g);
    return p;
  }

  static gemm::Kernels kernels(const gemm::Problem& p) {
    return p.form == gemm::Form::phases ? conv2d_dx_sm90_phases(p.type)
                                        : conv2d_dx_sm90_kernels(p.type);
  }
  // Phases of different sizes, or with different numbers of taps, are left to the general kernel.
  static bool supports(const Signature& s) {
    const ConvGeometry g = conv2d_dx_geometry(s);
    const auto whole = [&](int64_t size) { return size % g.stride == 0; };
    return whole(g.h) && whole(g.w) && whole(g.kh) && whole(g.kw) && s.in[0].dtype == s.in[1].dtype;
  }
  static auto operands(const Signature& s) { return epilogue_operands(s); }
};

}  // namespace

std::vector<Kernel> conv2d_dx_sm90() {
  return {gemm::op_kernel<Use>("conv2d_dx", "conv2d_dx_sm90")};
}

}  // namespace ebb::ops::cuda
