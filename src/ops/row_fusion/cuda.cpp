#include "backend/cuda/generated/row_fusion.h"
#include "ir/kernel.h"
#include "ops/prim/cuda_slices.h"
#include "ops/row_fusion/op.h"

namespace ebb::ops::cuda {
namespace {

using Output = ebb::cuda::RowExtent;

Output output_of(Extent per) {
  return per == Extent::element ? Output::element
         : per == Extent::row   ? Output::row
                                : Output::partial;
}

bool supports(const Signature& s, const Device&) {
  const auto& a = s.as<RowFusion>();
  return can_step(a.slices, s.in) &&
         ebb::cuda::RowPass::supports(Shape(a.shape), a.partial_rows > 0);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<RowFusion>();
  ebb::cuda::RowPass::Options o{.maximum = maxima_of(a), .partial_rows = a.partial_rows};
  for (const Type& t : s.out) o.out.push_back(t.dtype);
  for (const Extent per : extents_of(a)) o.extents.push_back(output_of(per));
  const SlicesPass slices = slices_pass(a.slices, {}, s.in);
  o.slices = slices.form;
  const ebb::cuda::RowPass pass(a.expr, Shape(a.shape), slice_types(a.slices, s.in, "row_fusion"),
                                o, ebb::cuda::of(device));
  return {0, [pass, slices](const Call& c) { pass.run(slices.in(c.in), c.out); }};
}

}  // namespace

std::vector<Kernel> row_fusion() {
  return {{.op = "row_fusion",
           .name = "row_fusion_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true,
           .may_alias = +[](const Signature& s, size_t, size_t in) {
             return !s.as<RowFusion>().slices.of(in);
           }}};
}

}  // namespace ebb::ops::cuda
