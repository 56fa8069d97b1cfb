// Loops with reductions along rows: a norm, its gradient, a softmax.
#include "backend/cuda/generated/rows.h"
#include "ops/loop/cuda.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::RowExtent;

RowExtent extent_of(Extent e) {
  return e == Extent::element ? RowExtent::element
         : e == Extent::row   ? RowExtent::row
                              : RowExtent::partial;
}

bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<Loop>();
  return kind_of(a) == LoopKind::rows && a.segments.widths.empty() && can_step(a.slices, s.in) &&
         ebb::cuda::RowPass::supports(Shape(a.shape), a.partial_rows > 0);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Loop>();
  ebb::cuda::RowPass::Options o{.partial_rows = a.partial_rows};
  for (const LoopReduction& r : a.reductions) o.maximum.push_back(r.maximum);
  for (const LoopResult& r : a.results) {
    o.out.push_back(r.dtype);
    o.extents.push_back(extent_of(r.extent));
  }
  const SlicesPass slices = slices_pass(a.slices, {}, s.in);
  o.slices = slices.form;
  o.swaps = swaps_form(a);
  o.unaligned = !s.aligned;
  const ebb::cuda::RowPass pass(a.expr, Shape(a.shape), without_views(s).in, o,
                                ebb::cuda::of(device));
  return {0, [pass, slices](const Call& c) { pass.run(slices.in(c.in), c.out); }};
}

}  // namespace

Kernel loop_rows() {
  Kernel k = loop_kernel("loop_rows_ptx");
  k.supports = supports;
  k.prepare = prepare;
  return k;
}

}  // namespace ebb::ops::cuda
