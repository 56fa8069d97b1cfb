// matmul_scaled on sm_90a, in the epilogue of the GEMM.
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/gemm/sm90/op.h"
#include "backend/cuda/kit/prologue.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/generated/work_split.h"
#include "ops/matmul_scaled/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

namespace {

namespace gemm = ebb::cuda::gemm;

// ---- behind the GEMM, where an address is not aligned ------------------------------------------

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

// The sizes of a use.
Params params_of(const Signature& s) {
  const Shape& out = s.out[0].shape;
  const int64_t columns = out[-1];
  return {.count = out.numel(),
          .columns = columns,
          .rows = out.numel() / std::max<int64_t>(1, out[0] * columns),
          .pitch = s.in.back().shape[-1]};
}

// Where the factors of a run begin.
const void* scale_of(const Signature& s, const Call& c) {
  return static_cast<const char*>(c.in.back()) +
         s.as<MatmulScaled>().column * size_of(s.in.back().dtype);
}

Program prepare_general(const Signature& s, Device& d) {
  const Program product = gemm::general_program(matmul(), scaled_product_of(s), d);
  const auto run = [product, s, fixed = params_of(s), &device = ebb::cuda::of(d)](const Call& c) {
    product.run(c);
    Params p = fixed;
    p.residual = c.in[c.in.size() - 2];
    p.scale = scale_of(s, c);
    p.out = c.out[0];
    ebb::cuda::visit_float(s.out[0].dtype, [&](auto zero) {
      ebb::cuda::launch("scale_and_add", scale_and_add<decltype(zero)>,
                        {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                        device);
    });
  };
  return {.workspace = product.workspace, .run = run};
}

// ---- in the epilogue ---------------------------------------------------------------------------

struct Use {
  static gemm::Problem problem(const Signature& s) {
    const Params sizes = params_of(s);
    gemm::Problem p = matmul_sm90_problem(scaled_product_of(s));
    p.residual = true;
    p.residual_type = s.out[0].dtype;
    p.residual_rows = 1;
    p.scale_rows = sizes.rows;
    p.scale_pitch = sizes.pitch;
    return p;
  }
  static gemm::Kernels kernels(const gemm::Problem& p) { return matmul_sm90_kernels(p); }
  static bool supports(const Signature& s) { return s.out[0].shape.numel() > 0; }
  static auto operands(const Signature& s) {
    return [s, bias = epilogue_of(scaled_product_of(s)).bias](const Call& c) {
      return gemm::Operands{.a = c.in[0],
                            .b = c.in[1],
                            .bias = address_of(bias, c),
                            .residual = c.in[c.in.size() - 2],
                            .scale = scale_of(s, c),
                            .out = c.out[0]};
    };
  }
  static Program general(const Signature& s, Device& d) { return prepare_general(s, d); }
};

}  // namespace

// Named as the GEMM's own kernel: where it is supported, the epilogue is nearly free.
std::vector<Kernel> matmul_scaled() {
  return {gemm::op_kernel<Use>("matmul_scaled", "matmul_sm90")};
}

}  // namespace ebb::ops::cuda
