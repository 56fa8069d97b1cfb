// conv2d on sm_90a: which kernel a use of the op needs.
#include "ops/prim/conv2d/cuda_sm90.h"

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/prim/conv2d/cuda_sm90_problem.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

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
  size_t k = 0;
  for (const Signature& m : added_products_of(s)) p.more_k[k++] = m.in[1].shape[1];
  return p;
}

namespace {

struct Use {
  static gemm::Problem problem(const Signature& s) { return conv2d_sm90_problem(s); }
  static gemm::Kernels kernels(const gemm::Problem& p) { return conv2d_sm90_kernels(p.type); }
  // Further products come with a bias and no residual.
  static bool supports(const Signature& s) {
    constexpr int64_t most = 1 + std::extent_v<decltype(gemm::Problem::more_k)>;
    const auto& a = s.as<Conv2d>();
    if (!a.epilogue.is_sum() || a.products > most || s.in[0].dtype != s.in[1].dtype) return false;
    return a.products == 1 || (!summands_of(s).residual && s.out[0].dtype == s.in[0].dtype);
  }
  static auto operands(const Signature& s) { return epilogue_operands(s); }
};

}  // namespace

std::vector<Kernel> conv2d_sm90() { return {gemm::op_kernel<Use>("conv2d", "conv2d_sm90")}; }

}  // namespace ebb::ops::cuda
