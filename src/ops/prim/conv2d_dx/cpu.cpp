// conv2d_dx through oneDNN, by one of two algorithms; the tuner chooses.
#include "backend/cpu/widen.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cpu_problem.h"
#include "ops/prim/conv2d_dx/op.h"

namespace ebb::ops::cpu {
namespace {

constexpr size_t operands = 2;  // without bias and residual

// oneDNN's f32 convolutions have f32 results.
bool supports(const Signature& s, const Device&) {
  if (!ebb::cpu::onednn_takes(s) || s.in.size() > operands) return false;
  return s.in[0].dtype != DType::f32 || !ebb::cpu::has_narrow_floats(s);
}

Program prepare_backward(const Signature& s) {
  ebb::cpu::ConvProblem p = onednn_problem(conv2d_dx_geometry(s));
  p.dst = s.in[0].dtype;
  p.weights = s.in[1].dtype;
  p.src = s.out[0].dtype;
  const ebb::cpu::ConvBackwardData conv(p);
  const auto run = [=](const Call& c) { conv.run({c.in[0], c.in[1], c.out[0], c.workspace}); };
  return {.workspace = conv.scratch_bytes(), .run = run};
}

// ---- as a forward convolution with rotated weights -------------------------------------------

// At stride 1, dx is the convolution of dy, padded to the full overlap, with the kernels rotated
// by 180 degrees and the channels exchanged. oneDNN's forward code is the faster one in f32.
bool can_turn(const ConvGeometry& g, const Signature& s) {
  return g.stride == 1 && s.in[1].dtype == DType::f32 && s.in[0].dtype == DType::f32 &&
         g.top < g.kh && g.bottom < g.kh && g.left < g.kw && g.right < g.kw;
}

// w [O,KH,KW,I] to [I,KH,KW,O] with both kernel dims reversed.
void turn_weights(const ConvGeometry& g, const float* w, float* turned) {
  const int64_t taps = g.kh * g.kw;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < g.c; ++i)
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t o = 0; o < g.o; ++o)
        turned[(i * taps + t) * g.o + o] = w[(o * taps + taps - 1 - t) * g.c + i];
}

Program prepare_turned(const Signature& s) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  const ebb::cpu::ConvForward conv(onednn_problem(rotated(g)));
  const int64_t bytes = (s.in[1].bytes() + 63) / 64 * 64;
  const auto run = [=](const Call& c) {
    auto* turned = static_cast<float*>(c.workspace);
    turn_weights(g, static_cast<const float*>(c.in[1]), turned);
    conv.run({c.in[0], turned, nullptr, c.out[0], static_cast<char*>(c.workspace) + bytes});
  };
  return {.workspace = bytes + conv.scratch_bytes(), .run = run};
}

// Turning costs a pass over the weights, which pays where there are many pixels to each.
std::vector<Tune> space(const Signature& s, const Device&) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  const Tune backward{{{"turn", 0}}}, turned{{{"turn", 1}}};
  if (!can_turn(g, s)) return {backward};
  constexpr int64_t enough_pixels = 2048;
  if (g.n * g.h * g.w >= enough_pixels) return {turned, backward};
  return {backward, turned};
}

Program prepare(const Signature& s, const Tune& tune, Device&) {
  return tune.value("turn", 0) == 1 ? prepare_turned(s) : prepare_backward(s);
}

bool supports_widened(const Signature& s, const Device&) {
  return ebb::cpu::has_narrow_floats(s) && s.in.size() == operands;
}

}  // namespace

std::vector<Kernel> conv2d_dx() {
  return {{.op = "conv2d_dx",
           .name = "conv2d_dx_onednn",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .cost = roofline<70, 70>},
          {.op = "conv2d_dx",
           .name = "conv2d_dx_widened",
           .supports = supports_widened,
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return ebb::cpu::prepare_widened(s, d, prepare); },
           .cost = ebb::cpu::widened_cost,
           .note = ebb::cpu::note_widened}};
}

}  // namespace ebb::ops::cpu
