#include "runtime/launches.h"

#include <fmt/format.h>

#include <map>

#include "passes/memory.h"

namespace ebb {
namespace {

struct Row {
  int64_t launches = 0;
  Cost cost = {};
  void add(const Cost& c) {
    ++launches;
    cost.bytes += c.bytes;
    cost.flops += c.flops;
  }
};

std::string line(const Row& r, std::string_view kernel) {
  return fmt::format("{:8} {:12.3f} {:12.3f}  {}\n", r.launches, r.cost.bytes * 1e-6,
                     r.cost.flops * 1e-9, kernel);
}

// What the copies are that the memory plan saves: that of the preferred kernels, without
// workspaces.
std::vector<bool> in_place_already(const Graph& g, Lowering& l) {
  return plan_memory(g,
                     [&](const Node& n) {
                       const std::vector<const Kernel*>& kernels = l.kernels.of(g.signature(n));
                       return kernels.empty() ? NodeMemory{}
                                              : NodeMemory{.in_place = kernels[0]->in_place,
                                                           .alias = kernels[0]->alias};
                     })
      .in_place_already;
}

}  // namespace

std::string launch_table(const Graph& g, Lowering& l) {
  Row total;
  std::map<std::string, Row, std::less<>> rows;
  const std::vector<bool> saved = in_place_already(g, l);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Signature s = g.signature(g.nodes()[i]);
    const std::vector<const Kernel*>& kernels = l.kernels.of(s);
    if (saved[i] || (!kernels.empty() && kernels[0]->alias)) continue;
    const std::string_view name = kernels.empty() ? s.op->name : kernels[0]->name;
    const Cost cost = cost_of(s);
    rows[std::string(name)].add(cost);
    total.add(cost);
  }
  std::string out = fmt::format("{:>8} {:>12} {:>12}  kernel\n", "launches", "MB", "GFLOP");
  out += line(total, "all");
  for (const auto& [name, row] : rows) out += line(row, name);
  return out;
}

}  // namespace ebb
