#include "runtime/side_stream.h"

#include <algorithm>
#include <array>

#include "ir/op.h"

namespace ebb {
namespace {

bool meet(const std::vector<Touched::Range>& a, const std::vector<Touched::Range>& b) {
  return std::ranges::any_of(a, [&](const Touched::Range& x) {
    return std::ranges::any_of(
        b, [&](const Touched::Range& y) { return x.begin < y.end && y.begin < x.end; });
  });
}

bool conflict(const Touched& a, const Touched& b) {
  return meet(a.writes, b.reads) || meet(a.reads, b.writes) || meet(a.writes, b.writes) ||
         (a.side_stream == SideStream::collectives && b.alone);
}

}  // namespace

std::vector<std::optional<SideStream>> side_stream_nodes(const Graph& g,
                                                         const std::vector<NodeMemory>& facts,
                                                         int32_t reach) {
  std::vector<size_t> needed(static_cast<size_t>(g.values()), SIZE_MAX);  // by value: first reader
  for (const NamedValue& o : g.outputs()) needed[static_cast<size_t>(o.value)] = 0;
  std::vector<std::optional<SideStream>> side_stream(g.nodes().size());
  for (size_t i = side_stream.size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    size_t first = SIZE_MAX;
    for (const int32_t v : n.out) first = std::min(first, needed[static_cast<size_t>(v)]);
    if (n.op->collective)
      side_stream[i] = SideStream::collectives;
    else if (n.op->matrix_work && !facts[i].cooperative && first > i + static_cast<size_t>(reach))
      side_stream[i] = SideStream::compute;
    for (const int32_t v : n.in) {
      size_t& need = needed[static_cast<size_t>(v)];
      need = std::min(need, facts[i].alias || n.op->collective ? first : i);
    }
  }
  return side_stream;
}

std::vector<std::optional<SideStream>> take_side_streams(const Graph& g,
                                                         std::vector<NodeMemory>& facts,
                                                         const Device& device, LoweringMode mode) {
  constexpr int32_t reach = 16;  // of 4 to 64 as fast as any for U-Nets; costs 2 % of memory
  // A collective may have to wait for those before it: with 16 as well, a block of a transformer
  // waited for the collectives of the one before, whose gradients it took the memory of.
  constexpr int32_t reach_of_collectives = 64;
  std::vector<std::optional<SideStream>> side_stream(facts.size());
  if (device.has_side_stream()) side_stream = side_stream_nodes(g, facts, reach);
  for (size_t i = 0; i < facts.size(); ++i) {
    if (mode == LoweringMode::blocks && side_stream[i] == SideStream::compute) side_stream[i] = {};
    if (side_stream[i])
      facts[i].extended_lifetime =
          side_stream[i] == SideStream::collectives ? reach_of_collectives : reach;
  }
  return side_stream;
}

std::vector<std::vector<int32_t>> side_stream_waits(const std::vector<Touched>& steps) {
  std::vector<std::vector<int32_t>> waits(steps.size());
  std::array<std::vector<int32_t>, side_streams> running;  // what the main stream did not wait for
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::optional<SideStream> own = steps[i].side_stream;
    for (size_t s = 0; s < side_streams; ++s) {
      if (own == static_cast<SideStream>(s)) continue;
      const auto last = std::find_if(running[s].rbegin(), running[s].rend(), [&](int32_t r) {
        return conflict(steps[static_cast<size_t>(r)], steps[i]);
      });
      if (last == running[s].rend()) continue;
      waits[i].push_back(*last);
      if (!own) running[s].erase(running[s].begin(), last.base());
    }
    if (own) running[static_cast<size_t>(*own)].push_back(static_cast<int32_t>(i));
  }
  return waits;
}

}  // namespace ebb
