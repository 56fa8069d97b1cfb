#include "train/split.h"

#include "base/error.h"
#include "base/names.h"
#include "ir/op.h"
#include "ops/prim/all_gather/op.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce_scatter/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::train {
namespace {

constexpr int64_t smallest_part = 256;  // elements: less would cost more messages than memory

// Whether a node computes each element of its result from that of one operand alone.
bool is_elementwise_of_one(const Graph& g, const Node& n) {
  return n.op->expr && n.in.size() == 1 && n.out.size() == 1 &&
         g.type(n.in[0]).shape == g.type(n.out[0]).shape;
}

}  // namespace

const std::vector<std::string>& shard_names() {
  static const std::vector<std::string> names = {"none", "optimizer", "weights"};
  return names;
}

Shard parse_shard(const std::string& name, bool accumulates) {
  if (name == "auto") return accumulates ? Shard::none : Shard::optimizer;
  const size_t at = find_name(name, shard_names());
  if (at == shard_names().size()) fail_unknown("shard: unknown value", name, shard_choices());
  return static_cast<Shard>(at);
}

std::vector<std::string> shard_choices() {
  std::vector<std::string> all = shard_names();
  all.insert(all.begin(), "auto");
  return all;
}

bool is_split(const Type& whole, const Split& split) {
  const int64_t n = whole.shape.numel();
  return split.shard != Shard::none && split.ranks > 1 && n % (split.ranks * split.grain) == 0 &&
         n / split.ranks >= smallest_part;
}

Type part_type(const Type& whole, const Split& split) {
  return {whole.dtype, {whole.shape.numel() / split.ranks}};
}

Tensor part_of(const Tensor& whole, const Split& split) {
  const Type part = part_type(whole.type(), split);
  return whole.at(part, split.rank * part.bytes());
}

Graph gather_parts(const Graph& g, const Split& split) {
  Rewriter rw(g);
  std::vector<Value> parts(static_cast<size_t>(g.values()));  // of weights that are split
  for (const Source& s : g.sources()) {
    const Type& whole = g.type(s.value);
    if (s.kind != Source::Kind::param || !is_split(whole, split)) {
      rw.set(s.value, rw.to().source(s.kind, s.name, whole));
      continue;
    }
    Value& part = parts[static_cast<size_t>(s.value)];
    part = rw.to().source(s.kind, s.name, part_type(whole, split));
  }
  const auto gathered = [&](Value part, const Shape& shape) {
    return ops::reshape(ops::all_gather(part, split.ranks), shape);
  };
  const auto give = [&](int32_t v) {
    const Value part = parts[static_cast<size_t>(v)];
    if (part) rw.set(v, gathered(part, g.type(v).shape));
  };
  for (const Node& n : g.nodes()) {
    const AtScope at(rw.to(), n.at);
    const Value part = n.in.empty() ? Value{} : parts[static_cast<size_t>(n.in[0])];
    if (part && is_elementwise_of_one(g, n)) {
      const Value computed = rw.to().add1(*n.op, n.attrs, {part});
      rw.set(n.out[0], gathered(computed, g.type(n.out[0]).shape));
      continue;
    }
    for (const int32_t v : n.in) give(v);
    rw.copy(n);
  }
  for (const auto* list : {&g.outputs(), &g.updates()})
    for (const NamedValue& v : *list) give(v.value);
  rw.copy_ends();
  return rw.take();
}

Graph send_sums_in(const Graph& g, DType sent) {
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) {
    if (n.op != &ops::def::reduce_scatter()) {
      rw.copy(n);
      continue;
    }
    const AtScope at(rw.to(), n.at);
    std::vector<Value> in;
    for (const int32_t v : n.in) in.push_back(ops::cast(rw.map(v), sent));
    const std::vector<Value> sums = rw.to().add(*n.op, n.attrs, in);
    for (size_t i = 0; i < sums.size(); ++i)
      rw.set(n.out[i], ops::cast(sums[i], g.type(n.out[i]).dtype));
  }
  rw.copy_ends();
  return rw.take();
}

Value sum_over_ranks(Value v, const Split& split) {
  return ops::cast(ops::all_reduce(ops::cast(v, split.sent), split.ranks), v.dtype());
}

}  // namespace ebb::train
