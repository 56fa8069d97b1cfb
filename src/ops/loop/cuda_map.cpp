// Loops without reductions: generated elementwise kernels on views.
#include "ops/loop/cuda.h"

namespace ebb::ops::cuda {
namespace {

// Of results one column wide, columns of wider tensors would lie apart from element to element.
bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<Loop>();
  if (kind_of(a) != LoopKind::map) return false;
  const bool columns = !a.slices.operands.empty() || a.concatenated != 0;
  const bool apart = columns && a.shape.back() == 1;
  return !apart && can_step(s.out) && a.segments.dim == -1 && swaps_dense(a) &&
         can_step(a.slices, s.in) && ebb::cuda::MapPass::supports_segments(Shape(a.shape));
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const ebb::cuda::MapPass pass({map_use(s)}, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

ebb::cuda::MapUse map_use(const Signature& s) {
  const auto& a = s.as<Loop>();
  const Signature whole = without_views(s);
  codegen::SegmentsForm segments{a.segments.widths, {}, {}};
  std::vector<DType> out;
  for (size_t i = 0; i < whole.in.size(); ++i)
    segments.segmented_in.push_back(a.segments.has_in(i));
  for (size_t k = 0; k < whole.out.size(); ++k) {
    segments.segmented_out.push_back(a.segments.has_out(k));
    out.push_back(whole.out[k].dtype);
  }
  return {.expr = a.expr,
          .shape = Shape(a.shape),
          .in = whole.in,
          .out = out,
          .segments = segments,
          .slices = slices_form(a.slices, a.segments, s.in),
          .swaps = swaps_form(a),
          .same = same_tensors(a),
          .concatenated = static_cast<size_t>(a.concatenated),
          .unaligned = !s.aligned};
}

Kernel loop_map() {
  Kernel k = loop_kernel("loop_map_ptx");
  k.supports = supports;
  k.prepare = prepare;
  return k;
}

}  // namespace ebb::ops::cuda
