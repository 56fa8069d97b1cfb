// matmul scaled by a row of factors for each image and added to a residual: a pass behind the GEMM,
// where an address is not aligned.
#include "backend/cuda/generated/work_split.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/kit/prologue.cuh"
#include "backend/cuda/launch.h"
#include "ops/prim/cuda_sm90_epilogue.h"
#include "ops/prim/matmul/cuda_behind.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

namespace {

constexpr int threads = 256;

struct Params {
  const void *residual, *scale;
  void* out;  // the product, replaced by the result
  int64_t count, columns, rows,
      pitch;  // rows: of an image; pitch: from one row of scale to the next
};

template <class T>
__global__ void __launch_bounds__(threads) scale_and_add(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.count) return;
  const int64_t row = i / p.columns, column = i % p.columns;
  const float by =
      ebb::cuda::to_float(static_cast<const T*>(p.scale)[row / p.rows * p.pitch + column]);
  T& at = static_cast<T*>(p.out)[i];
  at = ebb::cuda::from_float<T>(ebb::cuda::to_float(static_cast<const T*>(p.residual)[i]) +
                                by * ebb::cuda::to_float(at));
}

}  // namespace

Call call_of_product(const EpilogueForm& e, const Call& c, void* z) {
  Call product{{c.in[0], c.in[1]}, {z}, c.workspace};
  if (e.add.bias) product.in.push_back(c.in[*e.add.bias]);
  return product;
}

Program matmul_scaled(const Signature& s, Device& d) {
  const EpilogueForm e = epilogue_form(s).value();
  const Program product = ebb::cuda::gemm::general_program(matmul(), with_bias_alone(s), d);
  const Params fixed{.count = s.out[0].shape.numel(),
                     .columns = s.out[0].shape[-1],
                     .rows = e.factor_rows,
                     .pitch = s.in[*e.factors].shape[-1]};
  const auto run = [product, s, e, fixed, &device = ebb::cuda::of(d)](const Call& c) {
    product.run(call_of_product(e, c, c.out[0]));
    Params p = fixed;
    p.residual = address_of(e.add.residual, c);
    p.scale = factors_of(s, e, c);
    p.out = c.out[0];
    ebb::cuda::visit_float(s.out[0].dtype, [&](auto zero) {
      ebb::cuda::launch("scale_and_add", scale_and_add<decltype(zero)>,
                        {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                        device);
    });
  };
  return {.workspace = product.workspace, .run = run};
}

}  // namespace ebb::ops::cuda
