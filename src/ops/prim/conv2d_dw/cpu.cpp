// conv2d_dw through oneDNN.
#include "backend/cpu/widen.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cpu_problem.h"
#include "ops/prim/conv2d_dw/op.h"

namespace ebb::ops::cpu {
namespace {

bool supports(const Signature& s, const Device&) { return ebb::cpu::onednn_takes(s); }

Program prepare(const Signature& s, const Tune&, Device&) {
  ebb::cpu::ConvProblem p = onednn_problem(conv2d_dw_geometry(s));
  p.src = s.in[0].dtype;
  p.dst = s.in[1].dtype;
  if (s.out.size() == 2) p.bias = DType::f32;
  const ebb::cpu::ConvBackwardWeights conv(p);
  const auto run = [=](const Call& c) {
    conv.run({c.in[0], c.in[1], c.out[0], c.out.size() == 2 ? c.out[1] : nullptr, c.workspace});
  };
  return {.workspace = conv.scratch_bytes(), .run = run};
}

}  // namespace

std::vector<Kernel> conv2d_dw() {
  return {{.op = "conv2d_dw",
           .name = "conv2d_dw_onednn",
           .supports = supports,
           .prepare = prepare,
           .cost = roofline<70, 70>},
          {.op = "conv2d_dw",
           .name = "conv2d_dw_widened",
           .supports =
               +[](const Signature& s, const Device&) { return ebb::cpu::has_narrow_floats(s); },
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); },
           .cost = ebb::cpu::widened_cost,
           .note = ebb::cpu::note_widened}};
}

}  // namespace ebb::ops::cpu
