#include <algorithm>

#include "backend/cuda/generated/map.h"
#include "ir/kernel.h"
#include "ops/multi_tensor_pointwise/op.h"

namespace ebb::ops::cuda {
namespace {

using Map = ebb::cuda::SegmentedMap;

// The kind of each input, the same in all lists; a list of one element fits either. Empty: they
// disagree.
std::vector<Map::Operand> operands_of(const Signature& s) {
  const auto& a = s.as<MultiTensorPointwise>();
  const auto count = static_cast<size_t>(a.expr.inputs());
  const auto outputs = s.out.size() / static_cast<size_t>(a.lists);
  std::vector<Map::Operand> kinds(count, Map::Operand::scalar);
  for (size_t i = 0; i < s.in.size(); ++i)
    if (s.in[i].shape.numel() != 1) kinds[i % count] = Map::Operand::full;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const int64_t list = s.out[i / count * outputs].shape.numel();
    if (kinds[i % count] == Map::Operand::full && s.in[i].shape.numel() != list) return {};
  }
  return kinds;
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const auto& a = s.as<MultiTensorPointwise>();
  const auto inputs = static_cast<size_t>(a.expr.inputs());
  const auto outputs = s.out.size() / static_cast<size_t>(a.lists);
  Map::Options o{.kinds = operands_of(s)};
  o.unaligned = !s.aligned;
  for (size_t i = 0; i < inputs; ++i) o.in.push_back(s.in[i].dtype);
  for (size_t k = 0; k < outputs; ++k) o.out.push_back(s.out[k].dtype);
  for (size_t k = 0; k < s.out.size(); k += outputs) o.counts.push_back(s.out[k].shape.numel());
  const Map map(a.expr, o, ebb::cuda::of(device));
  return {0, [map](const Call& c) { map.run(c.in, c.out); }};
}

// Lists run concurrently: an output may only alias inputs of its own list.
bool may_alias(const Signature& s, size_t out, size_t in) {
  const auto lists = static_cast<size_t>(s.as<MultiTensorPointwise>().lists);
  return out / (s.out.size() / lists) == in / (s.in.size() / lists);
}

}  // namespace

std::vector<Kernel> multi_tensor_pointwise() {
  return {{.op = "multi_tensor_pointwise",
           .name = "multi_tensor_pointwise_ptx",
           .supports = +[](const Signature& s, const Device&) { return !operands_of(s).empty(); },
           .prepare = prepare,
           .in_place = true,
           .may_alias = may_alias}};
}

}  // namespace ebb::ops::cuda
