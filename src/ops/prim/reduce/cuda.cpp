#include "backend/cuda/generated/reduce.h"
#include "ir/kernel.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops::cuda {
namespace {

Shape iteration_shape(const Signature& s) {
  Shape shape(s.as<Reduce>().shape);
  for (const Type& t : s.in) shape = broadcast(shape, t.shape, "reduce");
  return shape;
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<Reduce>();
  const ebb::cuda::ReducePass pass(
      a.expr, iteration_shape(s), s.in,
      {a.dims, a.kind == ReduceKind::max, a.scale, !s.aligned, result_dtypes(a)},
      ebb::cuda::of(device));
  return {pass.workspace(), [pass](const Call& c) { pass.run(c.in, c.out, c.workspace); }};
}

}  // namespace

std::vector<Kernel> reduce() {
  return {{.op = "reduce",
           .name = "reduce_ptx",
           .supports =
               +[](const Signature& s, const Device&) {
                 return ebb::cuda::ReducePass::supports(iteration_shape(s));
               },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
