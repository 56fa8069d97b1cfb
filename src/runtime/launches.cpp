#include "runtime/launches.h"

#include <fmt/format.h>

#include <map>

#include "passes/schedule/memory.h"
#include "runtime/side_stream.h"

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

// Of the preferred kernels, without workspaces.
std::vector<NodeMemory> memory_of(const Graph& g, Lowering& l) {
  std::vector<NodeMemory> facts;
  for (const Node& n : g.nodes()) {
    const Signature s = g.signature(n);
    const Kernel* k = l.preferred(s);
    NodeMemory& m = facts.emplace_back();
    if (!k) continue;
    m = {.in_place = k->in_place, .alias = k->alias, .cooperative = k->cooperative};
    if (k->may_alias)
      m.may_alias = [k, s](size_t out, size_t in) { return k->may_alias(s, out, in); };
  }
  return facts;
}

MemoryPlan planned(const Graph& g, const std::vector<NodeMemory>& facts) {
  return plan_memory(
      g, [&](const Node& n) { return facts[static_cast<size_t>(&n - g.nodes().data())]; });
}

}  // namespace

std::string launch_table(const Graph& g, Lowering& l) {
  Row total;
  std::map<std::string, Row, std::less<>> rows;
  const std::vector<bool> saved = planned(g, memory_of(g, l)).in_place_already;
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Signature s = g.signature(g.nodes()[i]);
    const Kernel* k = l.preferred(s);
    if (saved[i] || (k && k->alias)) continue;
    const std::string_view name = k ? k->name : s.op->name;
    const Cost cost = cost_of(s);
    rows[std::string(name)].add(cost);
    total.add(cost);
  }
  std::string out = fmt::format("{:>8} {:>12} {:>12}  kernel\n", "launches", "MB", "GFLOP");
  out += line(total, "all");
  for (const auto& [name, row] : rows) out += line(row, name);
  return out;
}

std::string launch_list(const Graph& g, Lowering& l) {
  std::vector<NodeMemory> facts = memory_of(g, l);
  const std::vector<std::optional<SideStream>> side_stream =
      take_side_streams(g, facts, l.device, l.mode);
  const MemoryPlan memory = planned(g, facts);
  std::string out;
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Signature s = g.signature(g.nodes()[i]);
    const Kernel* k = l.preferred(s);
    if (k && k->alias) continue;
    out += str(k ? k->name : "no kernel", "  ", s.text(), " ->");
    for (const Type& t : s.out) out += str(' ', t);
    if (!s.at.empty()) out += str("  @ ", s.at);
    if (side_stream[i]) out += "  side stream";
    if (memory.in_place_already[i]) out += "  in place";
    out += '\n';
  }
  for (const NamedValue& c : memory.copies) out += str("copied at the end: ", c.name, '\n');
  return out + str("arena ", memory.arena_bytes, " bytes without workspaces\n");
}

}  // namespace ebb
