// Loops with reductions along rows: a norm, its gradient, a softmax.
#include "ops/loop/cuda.h"

namespace ebb::ops::cuda {
namespace {

using codegen::RowExtent;

RowExtent extent_of(Extent e) {
  return e == Extent::element ? RowExtent::element
         : e == Extent::row   ? RowExtent::row
                              : RowExtent::partial;
}

// A thread reads consecutive elements, so what changes along a row does so along its last dim.
bool reads_vectors(const Signature& s, const Loop& a) {
  return std::ranges::all_of(without_views(s).in, [&](const Type& t) {
    return !varies_along_rows(t.shape, a.row_dims) || t.shape[-1] == a.shape.back();
  });
}

// A row is in one segment.
bool reads_segments(const Loop& a) {
  const Segments& p = a.segments;
  return p.widths.empty() ||
         (-p.dim > a.row_dims && p.segmented_out.empty() && a.partial_rows == 0);
}

codegen::RowSegments segments_of(const Signature& s) {
  const auto& a = s.as<Loop>();
  codegen::RowSegments r{.widths = a.segments.widths, .dim = a.segments.dim};
  const auto operands = static_cast<size_t>(a.expr.inputs()) - a.reductions.size();
  for (size_t i = 0, tensor = 0; i < operands; ++i) {
    const bool segmented = a.segments.has_in(i);
    const size_t count = segmented ? r.widths.size() : 1;
    r.segmented.push_back(segmented);
    r.repeated.push_back(segmented &&
                         repeat_segments(a.segments, std::span(s.in).subspan(tensor, count)));
    tensor += count;
  }
  return r;
}

bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<Loop>();
  return kind_of(a) == LoopKind::rows && a.concatenated == 0 && reads_segments(a) &&
         can_step(a.slices, s.in) && reads_vectors(s, a) &&
         ebb::cuda::RowPass::supports(Shape(a.shape), a.row_dims, a.partial_rows > 0);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const ebb::cuda::RowPass pass({row_use(s)}, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

ebb::cuda::RowUse row_use(const Signature& s) {
  const auto& a = s.as<Loop>();
  ebb::cuda::RowUse use{.expr = a.expr,
                        .shape = Shape(a.shape),
                        .in = without_views(s).in,
                        .row_dims = a.row_dims,
                        .partial_rows = a.partial_rows};
  for (const LoopReduction& r : a.reductions) use.maximum.push_back(r.kind == ReduceKind::max);
  for (const LoopResult& r : a.results) {
    use.out.push_back(r.dtype);
    use.extents.push_back(extent_of(r.extent));
  }
  use.slices = slices_form(a.slices, a.segments, s.in);
  use.swaps = swaps_form(a);
  use.unaligned = !s.aligned;
  use.segments = segments_of(s);
  use.same = same_tensors(a);
  return use;
}

Kernel loop_rows() {
  Kernel k = loop_kernel("loop_rows_ptx");
  k.supports = supports;
  k.prepare = prepare;
  return k;
}

}  // namespace ebb::ops::cuda
