#include "backend/cpu/map.h"
#include "ir/kernel.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  std::vector<DType> out;
  for (const Type& t : s.out) out.push_back(t.dtype);
  const ebb::cpu::MapPass pass(s.as<Pointwise>().expr, s.out[0].shape, s.in, out);
  return {pass.workspace(), [pass](const Call& c) { pass.run(c.in, c.out, c.workspace); }};
}

}  // namespace

std::vector<Kernel> pointwise() {
  return {{.op = "pointwise",
           .name = "pointwise_blocks",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare,
           .in_place = true}};
}

}  // namespace ebb::ops::cpu
