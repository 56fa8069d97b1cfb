// conv2d_dw on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d_dw/cuda_sm90.h"

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d_dw/op.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;

struct Use {
  static gemm::Problem problem(const Signature& s) {
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

  static gemm::Kernels kernels(const gemm::Problem& p) { return conv2d_dw_sm90_kernels(p.type); }
  static bool supports(const Signature&) { return true; }
  static auto operands(const Signature&) {
    return [](const Call& c) {
      return gemm::Operands{.a = c.in[1],
                            .b = c.in[0],
                            .out = c.out[0],
                            .row_sums = c.out.size() == 2 ? c.out[1] : nullptr};
    };
  }
};

}  // namespace

std::vector<Kernel> conv2d_dw_sm90() {
  return {gemm::op_kernel<Use>("conv2d_dw", "conv2d_dw_sm90")};
}

}  // namespace ebb::ops::cuda
