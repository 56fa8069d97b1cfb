// matmul_act: on sm_90a in the epilogue of the product, elsewhere a pass behind it.
#include <algorithm>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/launch.h"
#include "ops/matmul_act/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

namespace {

namespace gemm = ebb::cuda::gemm;

ebb::cuda::Activation activation(const Signature& s) {
  const Gate g = gate_of(s.as<MatmulAct>().act).value();
  return {.linear = static_cast<float>(g.linear), .cubic = static_cast<float>(g.cubic)};
}

// ---- behind the product ------------------------------------------------------------------------

constexpr int threads = 256;

struct Params {
  const void *z, *y;  // y: null, or what z is scaled by the slope at
  void* out;          // may be z
  int64_t count;
  ebb::cuda::Activation activation;
};

template <class T>
__global__ void __launch_bounds__(threads) activate(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.count) return;
  using One = ebb::cuda::Vec<float, 1>;
  const float z = ebb::cuda::to_float(static_cast<const T*>(p.z)[i]);
  float v;
  if (p.y != nullptr) {
    const One y{ebb::cuda::to_float(static_cast<const T*>(p.y)[i])};
    v = z * ebb::cuda::activated<true>(p.activation, y).v[0];
  } else {
    v = ebb::cuda::activated<false>(p.activation, One{z}).v[0];
  }
  static_cast<T*>(p.out)[i] = ebb::cuda::from_float<T>(v);
}

bool supports_general(const Signature& s, const Device& d) {
  if (!gate_of(s.as<MatmulAct>().act)) return false;
  const Signature product = product_of(s);
  const std::vector<Kernel> all = matmul();
  return std::any_of(all.begin(), all.end(),
                     [&](const Kernel& k) { return k.supports(product, d); });
}

Program prepare_general(const Signature& s, const Tune&, Device& d) {
  const Program product = gemm::general_program(matmul(), product_of(s), d);
  Params fixed = {.count = s.out[0].shape.numel(), .activation = activation(s)};
  const bool slope = s.as<MatmulAct>().slope;
  const auto run = [product, fixed, slope, dtype = s.out[0].dtype,
                    &device = ebb::cuda::of(d)](const Call& c) {
    Call z = c;
    z.out = {c.out.back()};
    product.run(z);
    Params p = fixed;
    p.z = c.out.back();
    p.y = slope ? c.in.back() : nullptr;
    p.out = c.out[0];
    ebb::cuda::visit_float(dtype, [&](auto zero) {
      ebb::cuda::launch("activate", activate<decltype(zero)>,
                        {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                        device);
    });
  };
  return {.workspace = product.workspace, .run = run};
}

// ---- in the epilogue ---------------------------------------------------------------------------

gemm::Problem problem(const Signature& s) {
  const auto& a = s.as<MatmulAct>();
  gemm::Problem p = matmul_sm90_problem(product_of(s));
  p.post = a.slope ? gemm::Post::slope : gemm::Post::activate;
  p.activation = activation(s);
  p.keep = a.keep;
  return p;
}

bool supports(const Signature& s, const Device& d) {
  return gate_of(s.as<MatmulAct>().act) && gemm::supports(problem(s), ebb::cuda::of(d));
}

std::vector<Tune> space(const Signature& s, const Device& d) {
  const gemm::Problem p = problem(s);
  return gemm::tunes(p, matmul_sm90_kernels(p), ebb::cuda::of(d));
}

Program prepare(const Signature& s, const Tune& tune, Device& d) {
  const gemm::Problem p = problem(s);
  const gemm::Prepared product = gemm::prepare(p, matmul_sm90_kernels(p), tune, ebb::cuda::of(d));
  const Program general = prepare_general(s, {}, d);
  const auto run = [product, general, slope = s.as<MatmulAct>().slope,
                    bias = epilogue_of(product_of(s)).bias](const Call& c) {
    const gemm::Operands o{.a = c.in[0],
                           .b = c.in[1],
                           .bias = address_of(bias, c),
                           .slope_at = slope ? c.in.back() : nullptr,
                           .out = c.out[0],
                           .workspace = c.workspace,
                           .kept = c.out.size() == 2 ? c.out[1] : nullptr};
    product.takes(o) ? product.run(o) : general.run(c);
  };
  return {.workspace = std::max(product.workspace, general.workspace), .run = run};
}

}  // namespace

// The first is named as the product's own: what it serves costs hardly more than the product.
std::vector<Kernel> matmul_act() {
  return {{.op = "matmul_act",
           .name = "matmul_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space},
          {.op = "matmul_act",
           .name = "matmul_act_general",
           .supports = supports_general,
           .prepare = prepare_general}};
}

}  // namespace ebb::ops::cuda
