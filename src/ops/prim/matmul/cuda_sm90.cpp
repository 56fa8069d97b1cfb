// matmul on sm_90a: which kernel a use of the op needs.
#include "ops/prim/matmul/cuda_sm90.h"

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

namespace gemm = ebb::cuda::gemm;

gemm::Problem matmul_sm90_problem(const Signature& s) {
  const auto& attrs = s.as<Matmul>();
  const MatmulSizes z = matmul_sizes(s);
  gemm::Problem p;
  p.form = attrs.trans_a ? (attrs.trans_b ? gemm::Form::tt : gemm::Form::tn)
                         : (attrs.trans_b ? gemm::Form::nt : gemm::Form::nn);
  p.type = s.in[0].dtype;
  p.out = s.out[0].dtype;
  set_epilogue(p, s);
  p.row_sums = attrs.row_sums;
  p.m = z.m;
  p.n = z.n;
  p.k = z.k;
  p.batch = z.lead.numel();
  p.repeat_a = z.repeat_a;
  p.repeat_b = z.repeat_b;
  if (z.repeat_b && !attrs.trans_a) {  // the batch of a is more rows
    p.m *= p.batch;
    p.batch = 1;
  }
  size_t k = 0;
  for (const Signature& m : added_products_of_matmul(s)) p.more_k[k++] = matmul_sizes(m).k;
  return p;
}

gemm::Kernels matmul_sm90_kernels(const gemm::Problem& p) {
  const bool sums = p.more_k[0] > 0;
  switch (p.form) {
    case gemm::Form::nn: return sums ? matmul_sm90_nn_sums(p.type) : matmul_sm90_nn(p.type);
    case gemm::Form::tn: return matmul_sm90_tn(p.type);
    case gemm::Form::tt: return matmul_sm90_tt(p.type);
    case gemm::Form::gated:
      return sums ? matmul_sm90_gated_sums(p.type) : matmul_sm90_gated(p.type);
    default: return sums ? matmul_sm90_nt_sums(p.type) : matmul_sm90_nt(p.type);
  }
}

namespace {

using Kind = EpilogueForm::Kind;

constexpr int64_t most_products = 1 + std::extent_v<decltype(gemm::Problem::more_k)>;

struct Use {
  static gemm::Problem problem(const Signature& s) { return matmul_sm90_problem(s); }
  static gemm::Kernels kernels(const gemm::Problem& p) { return matmul_sm90_kernels(p); }
  static bool supports(const Signature& s) {
    const std::optional<EpilogueForm> e = epilogue_form(s);
    const auto& a = s.as<Matmul>();
    if (!e || a.products > most_products) return false;
    for (size_t k = 1; k < 2 * static_cast<size_t>(a.products); ++k)
      if (s.in[k].dtype != s.in[0].dtype) return false;
    if (e->kind == Kind::sum) return true;
    if (e->kind == Kind::scaled)
      return a.products == 1 && !a.trans_a && a.trans_b && s.out[0].shape.numel() > 0;
    // the error function is in the epilogue of gates alone: activations would take longer with it
    return !a.trans_a && (e->kind == Kind::gated || !e->gate.erf);
  }
  static auto operands(const Signature& s) { return epilogue_operands(s); }
};

}  // namespace

std::vector<Kernel> matmul_sm90() { return {gemm::op_kernel<Use>("matmul", "matmul_sm90")}; }

}  // namespace ebb::ops::cuda
