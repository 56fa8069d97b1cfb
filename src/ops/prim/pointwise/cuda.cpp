#include "backend/cuda/generated/map.h"
#include "ir/kernel.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops::cuda {
namespace {

Program prepare(const Signature& s, const Tune&, Device& device) {
  std::vector<DType> out;
  for (const Type& t : s.out) out.push_back(t.dtype);
  const ebb::cuda::MapUse use{.expr = s.as<Pointwise>().expr,
                              .shape = s.out[0].shape,
                              .in = s.in,
                              .out = out,
                              .unaligned = !s.aligned};
  const ebb::cuda::MapPass pass({use}, ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

std::vector<Kernel> pointwise() {
  return {{.op = "pointwise",
           .name = "pointwise_ptx",
           .supports =
               +[](const Signature& s, const Device&) {
                 return ebb::cuda::MapPass::supports(s.out[0].shape, s.in);
               },
           .prepare = prepare,
           .in_place = true}};
}

}  // namespace ebb::ops::cuda
