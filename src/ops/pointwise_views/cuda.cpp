#include "backend/cuda/generated/map.h"
#include "ir/kernel.h"
#include "ops/pointwise_views/op.h"
#include "ops/prim/cuda_slices.h"

namespace ebb::ops::cuda {
namespace {

// Of results one column wide, operands that are columns would lie apart from element to element.
bool supports(const Signature& s, const Device&) {
  const Shape shape = full_of(s).out[0].shape;
  const Slices& c = s.as<PointwiseViews>().slices;
  const bool apart = !c.operands.empty() && shape[-1] == 1;
  return !apart && can_step(c, s.in) && ebb::cuda::MapPass::supports_segments(shape);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const Signature full = full_of(s);
  const Segments& p = s.as<PointwiseViews>().segments;
  const SlicesPass slices = slices_pass(s.as<PointwiseViews>().slices, p, s.in);
  ebb::cuda::SegmentsForm segments{p.widths, {}, {}};
  std::vector<DType> out;
  for (size_t i = 0; i < full.in.size(); ++i) segments.segmented_in.push_back(p.has_in(i));
  for (size_t k = 0; k < full.out.size(); ++k) {
    segments.segmented_out.push_back(p.has_out(k));
    out.push_back(full.out[k].dtype);
  }
  const ebb::cuda::MapPass pass(s.as<PointwiseViews>().expr,
                                {full.out[0].shape, full.in, out, slices.form}, segments,
                                ebb::cuda::of(device));
  return {0, [pass, slices](const Call& c) { pass.run(slices.in(c.in), c.out); }};
}

}  // namespace

std::vector<Kernel> pointwise_views() {
  return {{.op = "pointwise_views",
           .name = "pointwise_views_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true,
           .may_alias = +[](const Signature& s, size_t out, size_t in) {
             const auto& a = s.as<PointwiseViews>();
             return same_segment(a.segments, out, in) && !a.slices.of(operand_of(a.segments, in));
           }}};
}

}  // namespace ebb::ops::cuda
