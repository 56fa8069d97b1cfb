// conv2d through oneDNN.
#include "backend/cpu/widen.h"
#include "ops/prim/conv2d/cpu_problem.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cpu {
namespace {

// oneDNN's f32 convolutions have f32 results and bias.
bool supports(const Signature& s, const Device&) {
  if (!ebb::cpu::onednn_takes(s) || epilogue_of(s).residual) return false;
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
  return ebb::cpu::has_narrow_floats(s) && !epilogue_of(s).residual;
}

}  // namespace

std::vector<Kernel> conv2d() {
  return {{.op = "conv2d", .name = "conv2d_onednn", .supports = supports, .prepare = prepare},
          {.op = "conv2d",
           .name = "conv2d_widened",
           .supports = supports_widened,
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); },
           .note = ebb::cpu::note_widened}};
}

}  // namespace ebb::ops::cpu
