// conv2d: of dtypes that oneDNN takes here through it, of others widened for it in the workspace,
// by panels of our own where oneDNN has no fast code for the activations, and of bf16 on matrix
// tiles where the processor has them.
#include "backend/cpu/widen.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cpu_problem.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/cpu_products.h"

namespace ebb::ops::cpu {
namespace {

// oneDNN's f32 convolutions have f32 results and bias.
bool supports(const Signature& s, const Device&) {
  if (!is_sum_of_one_product(s) || !ebb::cpu::onednn_takes(s) || summands_of(s).residual)
    return false;
  return s.in[0].dtype != DType::f32 || !ebb::cpu::has_narrow_floats(s);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  ebb::cpu::ConvProblem p = onednn_problem(conv2d_geometry(s));
  p.src = s.in[0].dtype;
  p.weights = s.in[1].dtype;
  p.dst = s.out[0].dtype;
  if (s.in.size() == 3) p.bias = s.in[2].dtype;
  const ebb::cpu::ConvForward conv(p);
  const auto run = [=](const Call& c) {
    conv.run({c.in[0], c.in[1], c.in.size() == 3 ? c.in[2] : nullptr, c.out[0], c.workspace});
  };
  return {.workspace = conv.scratch_bytes(), .run = run};
}

bool supports_widened(const Signature& s, const Device&) {
  return is_sum_of_one_product(s) && ebb::cpu::has_narrow_floats(s) && !summands_of(s).residual;
}

// Many input channels, with bias and residual.
bool supports_panels(const Signature& s, const Device&) {
  return is_sum_of_one_product(s) &&
         ebb::cpu::panels_are_fast(s.in[0].dtype, s.in[1].dtype, s.in[1].shape[3]);
}

// Addresses of the pixels that a tap of the kernel reads for pixels of the result.
void tap_rows(const ConvGeometry& g, int64_t tap, int64_t begin, int64_t count, const float* x,
              const float* zeros, const float** rows) {
  const int64_t ph = g.out_h(), pw = g.out_w();
  int64_t q = begin % pw, p = begin / pw % ph, n = begin / (pw * ph);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = p * g.stride - g.top + tap / g.kw, col = q * g.stride - g.left + tap % g.kw;
    const bool inside = row >= 0 && row < g.h && col >= 0 && col < g.w;
    rows[i] = inside ? x + ((n * g.h + row) * g.w + col) * g.c : zeros;
    if (++q < pw) continue;
    q = 0;
    if (++p < ph) continue;
    p = 0;
    ++n;
  }
}

Program prepare_panels(const Signature& s, const Tune&, Device&) {
  const ConvGeometry g = conv2d_geometry(s);
  const ebb::cpu::PanelProblem sizes{
      .m = g.n * g.out_h() * g.out_w(), .n = g.o, .k = g.c, .taps = g.kh * g.kw};
  const auto rows = [g](int64_t tap, int64_t begin, int64_t count, const float* x,
                        const float* zeros,
                        const float** to) { tap_rows(g, tap, begin, count, x, zeros, to); };
  return program_of(ebb::cpu::PanelMatmul(with_operands(sizes, s), g.x().numel(), rows), s);
}

// The same on matrix tiles.
ebb::cpu::AmxProblem amx_problem(const Signature& s) {
  const ConvGeometry g = conv2d_geometry(s);
  ebb::cpu::AmxProblem p{.images = g.n, .h = g.h, .w = g.w, .k = g.c, .o = g.o};
  p.kh = g.kh, p.kw = g.kw, p.stride = g.stride;
  p.top = g.top, p.left = g.left, p.bottom = g.bottom, p.right = g.right;
  return with_operands(p, s);
}

bool supports_amx(const Signature& s, const Device&) {
  return is_sum_in(s, DType::bf16) && ebb::cpu::amx_takes(amx_problem(s));
}

Program prepare_amx(const Signature& s, const Tune&, Device&) {
  return program_of(ebb::cpu::AmxMatmul(amx_problem(s)), s);
}

}  // namespace

std::vector<Kernel> conv2d() {
  return {{.op = "conv2d",
           .name = "conv2d_amx",
           .supports = supports_amx,
           .prepare = prepare_amx,
           .cost = roofline<90, 90>},
          {.op = "conv2d",
           .name = "conv2d_panels",
           .supports = supports_panels,
           .prepare = prepare_panels,
           .cost = roofline<80, 80>},
          {.op = "conv2d",
           .name = "conv2d_onednn",
           .supports = supports,
           .prepare = prepare,
           .cost = roofline<70, 70>},
          {.op = "conv2d",
           .name = "conv2d_widened",
           .supports = supports_widened,
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); },
           .cost = ebb::cpu::widened_cost,
           .note = ebb::cpu::note_widened}};
}

}  // namespace ebb::ops::cpu
