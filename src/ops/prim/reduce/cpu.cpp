#include "backend/cpu/map.h"
#include "ir/kernel.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const auto& a = s.as<Reduce>();
  Shape shape(a.shape);
  for (const Type& t : s.in) shape = broadcast(shape, t.shape, "reduce");
  const ebb::cpu::ReducePass pass(a.expr, shape, s.in,
                                  {a.dims, a.kind == ReduceKind::max, a.scale, result_dtypes(a)});
  return {pass.workspace(), [pass](const Call& c) { pass.run(c.in, c.out, c.workspace); }};
}

}  // namespace

std::vector<Kernel> reduce() {
  return {{.op = "reduce",
           .name = "reduce_blocks",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
