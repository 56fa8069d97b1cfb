#include "ops/prim/all_reduce/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) { return infer_collective(s, 1, 1); }

std::vector<Value> vjp(const VjpCall& c) {
  std::vector<Value> out;
  for (const Value& d : c.dout)
    out.push_back(d.graph ? all_reduce(d, c.sig.as<Collective>().ranks) : Value{});
  return out;
}

// As if all ranks had these operands, on rank 0.
void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const auto ranks = static_cast<double>(s.as<Collective>().ranks);
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t k = 0; k < in[i].v.size(); ++k) out[i].v[k] = ranks * in[i].v[k];
}

}  // namespace

const OpDef& def::all_reduce() {
  static const OpDef d = [] {
    OpDef out = collective_op("all_reduce", infer, vjp, reference);
    out.sends = 2;  // to be summed, and the sums
    return out;
  }();
  return d;
}

Value all_reduce(Value x, int64_t ranks) {
  return x.graph->add1(def::all_reduce(), Collective{ranks}, {x});
}

}  // namespace ebb::ops
