#include "runtime/launches.h"

#include <fmt/format.h>

#include <map>

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

}  // namespace

std::string launch_table(const Graph& g, Lowering& l) {
  Row total;
  std::map<std::string, Row, std::less<>> rows;
  for (const Node& n : g.nodes()) {
    const Signature s = g.signature(n);
    const std::vector<const Kernel*>& kernels = l.kernels.of(s);
    if (!kernels.empty() && kernels[0]->alias) continue;
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
