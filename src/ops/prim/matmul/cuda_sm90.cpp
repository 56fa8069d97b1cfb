// matmul on sm_90a: which kernel a use of the op needs.
#include "ops/prim/matmul/cuda_sm90.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/cuda_sm90_epilogue.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

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
  p.row_sums = attrs.sums;
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
  return p;
}

gemm::Kernels matmul_sm90_kernels(const gemm::Problem& p) {
  switch (p.form) {
    case gemm::Form::nn: return matmul_sm90_columns(p.type);
    case gemm::Form::tn: return matmul_sm90_turned_columns(p.type);
    case gemm::Form::tt: return matmul_sm90_turned_rows(p.type);
    case gemm::Form::gated: return matmul_sm90_gated(p.type);
    default: return matmul_sm90_rows(p.type);
  }
}

namespace {

bool supports(const Signature& s, const Device& d) {
  return gemm::supports(matmul_sm90_problem(s), ebb::cuda::of(d));
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  const gemm::Problem p = matmul_sm90_problem(s);
  return gemm::tunes(p, matmul_sm90_kernels(p), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  const gemm::Problem p = matmul_sm90_problem(s);
  const gemm::Prepared product = gemm::prepare(p, matmul_sm90_kernels(p), tune, ebb::cuda::of(d));
  const Program general = gemm::general_program(matmul(), s, d);
  const auto run = [product, general, e = epilogue_of(s)](const Call& c) {
    const gemm::Operands o{.a = c.in[0],
                           .b = c.in[1],
                           .bias = address_of(e.bias, c),
                           .addend = address_of(e.addend, c),
                           .out = c.out[0],
                           .row_sums = c.out.size() == 2 ? c.out[1] : nullptr,
                           .workspace = c.workspace};
    product.takes(o) ? product.run(o) : general.run(c);
  };
  return {.workspace = std::max(product.workspace, general.workspace), .run = run};
}

}  // namespace

std::vector<Kernel> matmul_sm90() {
  return {{.op = "matmul",
           .name = "matmul_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space}};
}

}  // namespace ebb::ops::cuda
