// conv2d_dx through oneDNN.
#include "backend/cpu/widen.h"
#include "ops/prim/conv2d/cpu_problem.h"
#include "ops/prim/conv2d_dx/op.h"

namespace ebb::ops::cpu {
namespace {

// oneDNN's f32 convolutions have f32 results.
bool supports(const Signature& s, const Device&) {
  if (!ebb::cpu::onednn_takes(s)) return false;
  return s.in[0].dtype != DType::f32 || !ebb::cpu::has_narrow_floats(s);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  ebb::cpu::ConvProblem p = onednn_problem(conv2d_dx_geometry(s));
  p.dst = s.in[0].dtype;
  p.weights = s.in[1].dtype;
  p.src = s.out[0].dtype;
  const ebb::cpu::ConvBackwardData conv(p);
  const auto run = [=](const Call& c) { conv.run({c.in[0], c.in[1], c.out[0], c.workspace}); };
  return {.workspace = conv.scratch_bytes(), .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dx() {
  return {{.op = "conv2d_dx", .name = "conv2d_dx_onednn", .supports = supports, .prepare = prepare},
          {.op = "conv2d_dx",
           .name = "conv2d_dx_widened",
           .supports =
               +[](const Signature& s, const Device&) { return ebb::cpu::has_narrow_floats(s); },
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); }}};
}

}  // namespace ebb::ops::cpu
