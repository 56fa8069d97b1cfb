#include "backend/cuda/map.h"
#include "ir/kernel.h"
#include "ops/pointwise_parts/op.h"

namespace ebb::ops::cuda {
namespace {

bool supports(const Signature& s, const Device&) {
  return ebb::cuda::MapPass::supports_parts(whole_of(s).out[0].shape);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const Signature whole = whole_of(s);
  const Parts& p = s.as<PointwiseParts>().parts;
  ebb::cuda::PartsForm parts{p.widths, {}, {}};
  std::vector<DType> out;
  for (size_t i = 0; i < whole.in.size(); ++i) parts.joined.push_back(p.joins(i));
  for (size_t k = 0; k < whole.out.size(); ++k) {
    parts.cut.push_back(p.cuts(k));
    out.push_back(whole.out[k].dtype);
  }
  const ebb::cuda::MapPass pass(s.as<PointwiseParts>().expr, {whole.out[0].shape, whole.in, out},
                                parts, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

std::vector<Kernel> pointwise_parts() {
  return {{.op = "pointwise_parts",
           .name = "pointwise_parts_ptx",
           .supports = supports,
           .prepare = prepare,
           .in_place = true,
           .may_share = +[](const Signature& s, size_t out, size_t in) {
             return same_part(s.as<PointwiseParts>().parts, out, in);
           }}};
}

}  // namespace ebb::ops::cuda
