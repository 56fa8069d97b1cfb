#include "ops/prim/broadcast/op.h"

#include "base/error.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) { return infer_collective(s, 1, 1); }

// Only rank 0 has a gradient, and the graph is the same on all.
std::vector<Value> vjp(const VjpCall& c) {
  require(c.sig.as<Collective>().ranks == 1, "broadcast: has no gradient  at ", c.sig.at);
  return {c.dout.begin(), c.dout.end()};
}

// As if all ranks had these operands, on rank 0.
void reference(const Signature&, std::span<const RefArray> in, std::span<RefArray> out) {
  for (size_t i = 0; i < in.size(); ++i) out[i].v = in[i].v;
}

}  // namespace

const OpDef& def::broadcast() {
  static const OpDef d = collective_op("broadcast", infer, vjp, reference);
  return d;
}

Value broadcast(Value x, int64_t ranks) {
  return x.graph->add1(def::broadcast(), Collective{ranks}, {x});
}

}  // namespace ebb::ops
