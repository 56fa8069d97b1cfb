// matmul: of operands in one dtype that oneDNN multiplies here through it, of others widened for it
// in the workspace, by panels of our own where oneDNN has no fast code for the activations, and of
// bf16 on matrix tiles where the processor has them.
#include "backend/cpu/onednn.h"
#include "backend/cpu/widen.h"
#include "ir/roofline.h"
#include "ops/prim/cpu_products.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::MatmulProblem;

MatmulProblem problem(const Signature& s) {
  const auto& t = s.as<ops::Matmul>();
  const MatmulSizes z = matmul_sizes(s);
  MatmulProblem p{.batch = z.lead.numel(), .m = z.m, .n = z.n, .k = z.k};
  p.a_layout.transposed = t.trans_a;
  p.b_layout.transposed = t.trans_b;
  p.a = s.in[0].dtype;
  p.b = s.in[1].dtype;
  p.c = s.out[0].dtype;
  if (s.in.size() == 3) p.bias = s.in[2].dtype;
  return p;
}

const void* bias_of(const Call& call) { return call.in.size() == 3 ? call.in[2] : nullptr; }

// One GEMM per matrix of the batch, if one operand is shared by all.
Program prepare_shared(const Signature& s, MatmulProblem p) {
  const MatmulSizes z = matmul_sizes(s);
  const int64_t count = p.batch;
  p.batch = 1;
  const ebb::cpu::Matmul product(p);
  const int64_t a_step = z.repeat_a ? 0 : z.m * z.k * size_of(p.a);
  const int64_t b_step = z.repeat_b ? 0 : z.k * z.n * size_of(p.b);
  const int64_t c_step = z.m * z.n * size_of(p.c);
  const auto run = [=](const Call& call) {
    for (int64_t i = 0; i < count; ++i)
      product.run({static_cast<const char*>(call.in[0]) + i * a_step,
                   static_cast<const char*>(call.in[1]) + i * b_step, bias_of(call),
                   static_cast<char*>(call.out[0]) + i * c_step, call.workspace});
  };
  return {.workspace = product.scratch_bytes(), .run = run};
}

bool is_plain(const Signature& s) {
  return is_sum_of_one_product(s) && !summands_of(s).residual && !s.as<Matmul>().row_sums;
}

// oneDNN's f32 GEMMs have f32 results and bias.
bool supports(const Signature& s, const Device&) {
  if (!ebb::cpu::onednn_takes(s) || !is_plain(s) || s.in[0].dtype != s.in[1].dtype) return false;
  return s.in[0].dtype != DType::f32 || !ebb::cpu::has_narrow_floats(s);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  MatmulProblem p = problem(s);
  const MatmulSizes z = matmul_sizes(s);
  if (z.repeat_b && !p.a_layout.transposed) {  // the batch of a is more rows
    p.m *= p.batch;
    p.batch = 1;
  } else if (z.repeat_a || z.repeat_b) {
    return prepare_shared(s, p);
  }
  const ebb::cpu::Matmul product(p);
  const auto run = [=](const Call& call) {
    product.run({call.in[0], call.in[1], bias_of(call), call.out[0], call.workspace});
  };
  return {.workspace = product.scratch_bytes(), .run = run};
}

bool supports_widened(const Signature& s, const Device&) {
  return ebb::cpu::has_narrow_floats(s) && is_plain(s);
}

// Activations times linear weights [N,K], with bias and residual.
bool supports_panels(const Signature& s, const Device&) {
  const auto& t = s.as<Matmul>();
  return is_sum_of_one_product(s) && !t.trans_a && t.trans_b && !t.row_sums &&
         s.in[1].shape.rank() == 2 &&
         ebb::cpu::panels_are_fast(s.in[0].dtype, s.in[1].dtype, s.in[1].shape[1]);
}

Program prepare_panels(const Signature& s, const Tune&, Device&) {
  const MatmulSizes z = matmul_sizes(s);
  const ebb::cpu::PanelProblem sizes{.m = z.lead.numel() * z.m, .n = z.n, .k = z.k};
  const auto rows = [k = z.k](int64_t, int64_t begin, int64_t count, const float* a, const float*,
                              const float** to) {
    for (int64_t i = 0; i < count; ++i) to[i] = a + (begin + i) * k;
  };
  return program_of(ebb::cpu::PanelMatmul(with_operands(sizes, s), sizes.m * sizes.k, rows), s);
}

// The same on matrix tiles.
ebb::cpu::AmxProblem amx_problem(const Signature& s) {
  const MatmulSizes z = matmul_sizes(s);
  return with_operands(ebb::cpu::AmxProblem{.w = z.lead.numel() * z.m, .k = z.k, .o = z.n}, s);
}

bool supports_amx(const Signature& s, const Device&) {
  const auto& t = s.as<Matmul>();
  return is_sum_in(s, DType::bf16) && !t.trans_a && t.trans_b && !t.row_sums &&
         s.in[1].shape.rank() == 2 && ebb::cpu::amx_takes(amx_problem(s));
}

Program prepare_amx(const Signature& s, const Tune&, Device&) {
  return program_of(ebb::cpu::AmxMatmul(amx_problem(s)), s);
}

}  // namespace

std::vector<Kernel> matmul() {
  return {{.op = "matmul",
           .name = "matmul_amx",
           .supports = supports_amx,
           .prepare = prepare_amx,
           .cost = roofline<90, 90>},
          {.op = "matmul",
           .name = "matmul_panels",
           .supports = supports_panels,
           .prepare = prepare_panels,
           .cost = roofline<80, 80>},
          {.op = "matmul",
           .name = "matmul_onednn",
           .supports = supports,
           .prepare = prepare,
           .cost = roofline<70, 70>},
          {.op = "matmul",
           .name = "matmul_widened",
           .supports = supports_widened,
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); },
           .cost = ebb::cpu::widened_cost,
           .note = ebb::cpu::note_widened}};
}

}  // namespace ebb::ops::cpu
