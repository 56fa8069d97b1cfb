// matmul with an activation, its gradient or a gate: a pass behind the GEMM.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "backend/cuda/kit/activation.cuh"
#include "ir/roofline.h"
#include "ops/prim/cuda_sm90_epilogue.h"
#include "ops/prim/matmul/cuda_gemm.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

namespace {

constexpr int threads = 256;

struct Params {
  const void *z, *y;  // y: null, or the input of the activation gradient
  void* out;          // may be z
  int64_t count;      // of results
  int64_t half;       // 0, or columns of each half of z
  int64_t gate_at, other_at;
  ebb::cuda::Activation activation;
  bool erf;
};

// GELU with an error function, or its gradient.
template <bool grad>
__device__ float exact_gelu(float x) {
  const float gate = normcdff(x);
  constexpr float density = 0.3989422804f;  // at 0
  return grad ? gate + x * density * expf(-0.5f * x * x) : x * gate;
}

template <bool grad>
__device__ float activated_at(const Params& p, float x) {
  if (p.erf) return exact_gelu<grad>(x);
  return ebb::cuda::activated<grad>(p.activation, ebb::cuda::Vec<float, 1>{x}).v[0];
}

template <class T>
__global__ void __launch_bounds__(threads) activate(const __grid_constant__ Params p) {
  ebb::cuda::begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= p.count) return;
  const auto z = [&](int64_t at) { return ebb::cuda::to_float(static_cast<const T*>(p.z)[at]); };
  float v;
  if (p.half > 0) {
    const int64_t at = i / p.half * p.half + i;  // of the first half
    v = activated_at<false>(p, z(at + p.gate_at)) * z(at + p.other_at);
  } else if (p.y != nullptr) {
    v = z(i) * activated_at<true>(p, ebb::cuda::to_float(static_cast<const T*>(p.y)[i]));
  } else {
    v = activated_at<false>(p, z(i));
  }
  static_cast<T*>(p.out)[i] = ebb::cuda::from_float<T>(v);
}

using Form = EpilogueForm;

bool supports(const Signature& s, const Device& d) {
  const std::optional<Form> e = epilogue_form(s);
  if (!e || e->kind == Form::Kind::sum || e->kind == Form::Kind::scaled) return false;
  const bool gated = e->kind == Form::Kind::gated;
  if (gated && !e->keeps && s.in[1].shape.rank() > 2) return false;  // see prepare_gate
  if (s.as<Matmul>().trans_a || s.as<Matmul>().products > 1) return false;
  return matmul_general().supports(with_bias_alone(s), d);
}

Params params_of(const Signature& s, const Form& e) {
  Params p = {
      .count = s.out[0].shape.numel(), .activation = activation_of(e.gate), .erf = e.gate.erf};
  if (e.kind != Form::Kind::gated) return p;
  p.half = s.out[0].shape[-1];
  (e.gate.of == 0 ? p.other_at : p.gate_at) = p.half;
  return p;
}

void run_activate(DType dtype, const Params& p, ebb::cuda::CudaDevice& device) {
  ebb::cuda::visit_float(dtype, [&](auto zero) {
    ebb::cuda::launch("activate", activate<decltype(zero)>,
                      {.grid = ebb::cuda::blocks_for(p.count, threads), .block = threads}, p,
                      device);
  });
}

// The call of with_bias_alone(), whose result is at `z`.
Call call_of_product(const EpilogueForm& e, const Call& c, void* z) {
  Call product{{c.in[0], c.in[1]}, {z}, c.workspace};
  if (e.add.bias) product.in.push_back(c.in[*e.add.bias]);
  return product;
}

// A gate without z as a result: z in the workspace, chunk by chunk of its rows. Chunks of whole 16
// rows are aligned as the operands are.
Program prepare_gate(const Signature& s, const Form& e, Device& d) {
  const Signature all = with_bias_alone(s);
  const int64_t columns = all.out[0].shape[-1], k = s.in[0].shape[-1];
  const int64_t rows = columns == 0 ? 0 : all.out[0].shape.numel() / columns;
  constexpr int64_t fewest = 256, elements = 1 << 16;
  const int64_t at_once = std::max(fewest, elements / std::max<int64_t>(1, columns) / 16 * 16);
  const auto product_of_rows = [&](int64_t count) {
    Signature p = all;
    p.in[0].shape = {count, k};
    p.out = p.op->infer(p);
    return matmul_general().prepare(p, {}, d);
  };
  const Program many = product_of_rows(std::min(rows, at_once));
  const Program last = product_of_rows(rows % at_once);
  constexpr int64_t aligned = 256;  // where the GEMM's own workspace begins
  const int64_t element = size_of(s.out[0].dtype);
  const int64_t z_bytes = ebb::ceil_div(at_once * columns * element, aligned) * aligned;
  const auto run = [=, fixed = params_of(s, e), dtype = s.out[0].dtype,
                    &device = ebb::cuda::of(d)](const Call& c) {
    auto* z = static_cast<char*>(c.workspace);
    for (int64_t row = 0; row < rows; row += at_once) {
      const int64_t count = std::min(at_once, rows - row);
      Call chunk = call_of_product(e, c, z);
      chunk.in[0] = static_cast<char*>(c.in[0]) + row * k * element;
      chunk.workspace = z + z_bytes;
      (count == at_once ? many : last).run(chunk);
      Params p = fixed;
      p.z = z;
      p.out = static_cast<char*>(c.out[0]) + row * p.half * element;
      p.count = count * p.half;
      run_activate(dtype, p, device);
    }
  };
  return {.workspace = z_bytes + std::max(many.workspace, last.workspace), .run = run};
}

Program prepare(const Signature& s, const Tune&, Device& d) {
  const Form e = epilogue_form(s).value();
  if (e.kind == Form::Kind::gated && !e.keeps) return prepare_gate(s, e, d);
  const Program product = matmul_general().prepare(with_bias_alone(s), {}, d);
  const auto run = [product, e, fixed = params_of(s, e), dtype = s.out[0].dtype,
                    &device = ebb::cuda::of(d)](const Call& c) {
    product.run(call_of_product(e, c, c.out.back()));
    Params p = fixed;
    p.z = c.out.back();
    p.y = address_of(e.y, c);
    p.out = c.out[0];
    run_activate(dtype, p, device);
  };
  return {.workspace = product.workspace, .run = run};
}

}  // namespace

Kernel matmul_activated() {
  return {.op = "matmul",
          .name = "matmul_activated",
          .supports = supports,
          .prepare = prepare,
          .cost = roofline<35, 40>};
}

}  // namespace ebb::ops::cuda
