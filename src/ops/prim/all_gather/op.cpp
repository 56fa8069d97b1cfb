#include "ops/prim/all_gather/op.h"

#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce_scatter/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  return infer_collective(s, s.as<Collective>().ranks, 1);
}

// Sums are made in f32, as those of weights' gradients are.
std::vector<Value> vjp(const VjpCall& c) {
  const int64_t ranks = c.sig.as<Collective>().ranks;
  std::vector<Value> out;
  for (const Value& d : c.dout)
    out.push_back(d ? cast(reduce_scatter(cast(d, DType::f32), ranks), d.dtype()) : Value{});
  return out;
}

// As if all ranks had these operands, on rank 0.
void reference(const Signature&, std::span<const RefArray> in, std::span<RefArray> out) {
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t k = 0; k < out[i].v.size(); ++k) out[i].v[k] = in[i].v[k % in[i].v.size()];
}

}  // namespace

const OpDef& def::all_gather() {
  static const OpDef d = collective_op("all_gather", infer, vjp, reference);
  return d;
}

Value all_gather(Value x, int64_t ranks) {
  return x.graph->add1(def::all_gather(), Collective{ranks}, {x});
}

}  // namespace ebb::ops
