#include "backend/cuda/map.h"
#include "ir/kernel.h"
#include "ops/pointwise_parts/op.h"
#include "ops/prim/cuda_columns.h"

namespace ebb::ops::cuda {
namespace {

// Of results one column wide, operands that are columns would lie apart from element to element.
bool supports(const Signature& s, const Device&) {
  const Shape shape = whole_of(s).out[0].shape;
  const Columns& c = s.as<PointwiseParts>().columns;
  const bool apart = !c.columns.empty() && shape[-1] == 1;
  return !apart && can_step(c, s.in) && ebb::cuda::MapPass::supports_parts(shape);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const Signature whole = whole_of(s);
  const Parts& p = s.as<PointwiseParts>().parts;
  const ColumnsPass columns = columns_pass(s.as<PointwiseParts>().columns, p, s.in);
  ebb::cuda::PartsForm parts{p.widths, {}, {}};
  std::vector<DType> out;
  for (size_t i = 0; i < whole.in.size(); ++i) parts.joined.push_back(p.joins(i));
  for (size_t k = 0; k < whole.out.size(); ++k) {
    parts.cut.push_back(p.cuts(k));
    out.push_back(whole.out[k].dtype);
  }
  const ebb::cuda::MapPass pass(s.as<PointwiseParts>().expr,
                                {whole.out[0].shape, whole.in, out, columns.form}, parts,
                                ebb::cuda::of(device));
  return {0, [pass, columns](const Call& c) { pass.run(columns.in(c.in), c.out); }};
}

}  // namespace

std::vector<Kernel> pointwise_parts() {
  return {{.op = "pointwise_parts",
           .name = "pointwise_parts_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true,
           .may_share = +[](const Signature& s, size_t out, size_t in) {
             const auto& a = s.as<PointwiseParts>();
             return same_part(a.parts, out, in) && !a.columns.of(operand_of(a.parts, in));
           }}};
}

}  // namespace ebb::ops::cuda
