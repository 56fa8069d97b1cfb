// What the two files of matmul's general kernels share.
#pragma once

#include "backend/cuda/gemm/general/gemm.cuh"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/cuda_gemm.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

template <ebb::cuda::K WhereA, ebb::cuda::K WhereB>
Program matmul_program(const Signature& s, const ebb::cuda::GemmPlan& plan,
                       ebb::cuda::CudaDevice& device) {
  using ebb::cuda::K, ebb::cuda::Plain;
  const ebb::cuda::GemmTask t = matmul_task(s);
  const MatmulSizes z = matmul_sizes(s);
  const int m = static_cast<int>(t.m), n = static_cast<int>(t.n), k = static_cast<int>(t.k);
  const Plain a{.outers = WhereA == K::inner ? m : k,
                .inners = WhereA == K::inner ? k : m,
                .step = z.repeat_a ? 0 : t.m * t.k,
                .out_rows = t.m};
  const Plain b{.outers = WhereB == K::inner ? n : k,
                .inners = WhereB == K::inner ? k : n,
                .step = z.repeat_b ? 0 : t.n * t.k};
  const ebb::cuda::Gemm<Plain, WhereA, Plain, WhereB> gemm(t, plan, a, b);
  const auto run = [gemm, e = summands_of(s), &device](const Call& c) {
    gemm.run(
        {c.in[0], c.in[1], address_of(e.bias, c), address_of(e.residual, c), c.out[0], c.workspace},
        device);
  };
  return {.workspace = plan.workspace, .run = run};
}

}  // namespace ebb::ops::cuda
