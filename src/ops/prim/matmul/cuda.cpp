// matmul on CUDA: the general kernels.
#include <algorithm>

#include "ir/roofline.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/cuda_gemm.h"
#include "ops/prim/matmul/cuda_sm90.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

using ebb::cuda::GemmTask, ebb::cuda::K;

GemmTask matmul_task(const Signature& s) {
  const auto& attrs = s.as<Matmul>();
  const MatmulSizes z = matmul_sizes(s);
  GemmTask t{.m = z.m, .n = z.n, .k = z.k, .batch = z.lead.numel()};
  t.out_rows = t.m * t.batch;
  if (z.repeat_b && !attrs.trans_a) {  // the batch of a is more rows
    t.m = t.out_rows;
    t.batch = 1;
  }
  t.a = s.in[0].dtype;
  t.b = s.in[1].dtype;
  t.out = s.out[0].dtype;
  const Summands e = summands_of(s);
  if (e.bias) t.bias = s.in[*e.bias].dtype;
  if (e.residual) t.residual = s.in[*e.residual].dtype;
  t.residual_rows = e.rows;
  t.a_run = attrs.trans_a ? t.m : t.k;
  t.b_run = attrs.trans_b ? t.k : t.n;
  t.a_k = attrs.trans_a ? K::outer : K::inner;
  t.b_k = attrs.trans_b ? K::inner : K::outer;
  t.aligned = s.aligned;
  return t;
}

namespace {

bool supports(const Signature& s, const Device&) {
  const auto& attrs = s.as<Matmul>();
  return is_sum_of_one_product(s) && s.in[0].dtype == s.in[1].dtype &&
         (!attrs.row_sums || attrs.trans_a) && ebb::cuda::gemm_supports(matmul_task(s));
}

// The GEMM, then the sums of a's columns as it is stored.
Program with_row_sums(const Signature& s, const Program& product, ebb::cuda::CudaDevice& device) {
  const int64_t rows = s.in[0].shape[0], cols = s.in[0].shape[1];
  const auto run = [product, rows, cols, dtype = s.in[0].dtype, aligned = s.aligned,
                    &device](const Call& c) {
    product.run(c);
    ebb::cuda::column_sums({.x = c.in[0],
                            .dtype = dtype,
                            .rows = rows,
                            .cols = cols,
                            .workspace = static_cast<float*>(c.workspace),
                            .out = static_cast<float*>(c.out[1]),
                            .aligned = aligned},
                           device);
  };
  const int64_t parts = ebb::cuda::column_sum_partials(rows, cols, device) * cols * int64_t{4};
  return {.workspace = std::max(product.workspace, parts), .run = run};
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  return ebb::cuda::gemm_space(matmul_task(s), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
  const ebb::cuda::GemmPlan plan = ebb::cuda::gemm_plan(matmul_task(s), tune, device);
  const Program product =
      s.as<Matmul>().trans_b ? matmul_nt(s, plan, device) : matmul_nn(s, plan, device);
  return s.as<Matmul>().row_sums ? with_row_sums(s, product, device) : product;
}

}  // namespace

Kernel matmul_general() {
  return {.op = "matmul",
          .name = "matmul_general",
          .supports = supports,
          .prepare = prepare,
          .space = space,
          .cost = roofline<40, 50>,
          .family = "gemm_general"};
}

std::vector<Kernel> matmul() {
  std::vector<Kernel> all = matmul_sm90();
  all.push_back(matmul_general());
  all.push_back(matmul_activated());
  return all;
}

}  // namespace ebb::ops::cuda
