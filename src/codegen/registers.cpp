#include "codegen/registers.h"

#include <algorithm>
#include <numeric>

namespace ebb::codegen {
namespace {

// By value: where it is used last, and how often. A use in a loop that the definition is not in
// lasts until the end of the loop; that of a `when`'s condition as long as its region.
struct Uses {
  std::vector<int32_t> last, count, defined;
  std::vector<std::vector<int32_t>> writes;  // of variables

  explicit Uses(const Kernel& k)
      : last(k.values.size(), -1),
        count(k.values.size()),
        defined(k.values.size(), -1),
        writes(k.values.size()) {
    const Regions regions(k);
    const auto end_of_use = [&](int32_t at, int32_t definition) {
      int32_t end = at;
      if (k.code[static_cast<size_t>(at)].op == Op::when)
        end = regions.end[static_cast<size_t>(at)];
      for (int32_t l = regions.loop_of[static_cast<size_t>(at)]; l > definition;
           l = regions.loop_of[static_cast<size_t>(l)])
        end = std::max(end, regions.end[static_cast<size_t>(l)]);
      return end;
    };
    for (size_t c = 0; c < k.code.size(); ++c) {
      const Instruction& i = k.code[c];
      const auto at = static_cast<int32_t>(c);
      for (int o = 0; o < i.operands; ++o) {
        const auto v = static_cast<size_t>(k.operand(i, o));
        ++count[v];
        last[v] = std::max(last[v], end_of_use(at, defined[v]));
        if (o == 0 && i.op == Op::write) writes[v].push_back(at);
      }
      for (int32_t r = 0; r < i.results; ++r) defined[static_cast<size_t>(i.result + r)] = at;
    }
  }
};

}  // namespace

SharedRegisters::SharedRegisters(const Kernel& k)
    : same_as(k.values.size()), vanishes(k.code.size()) {
  std::iota(same_as.begin(), same_as.end(), 0);
  const Uses uses(k);
  for (size_t c = 0; c < k.code.size(); ++c) {
    const Instruction& i = k.code[c];
    if (i.op == Op::read) {
      const auto variable = static_cast<size_t>(k.operand(i, 0));
      const std::vector<int32_t>& w = uses.writes[variable];
      const auto next = std::upper_bound(w.begin(), w.end(), static_cast<int32_t>(c));
      if (next == w.end() || *next >= uses.last[static_cast<size_t>(i.result)]) {
        same_as[static_cast<size_t>(i.result)] = static_cast<int32_t>(variable);
        vanishes[c] = true;
        continue;
      }
    }
    if (i.results == 0) continue;
    for (size_t next = c + 1; next < k.code.size() && k.code[next].op == Op::write; ++next) {
      const int32_t variable = k.operand(k.code[next], 0), v = k.operand(k.code[next], 1);
      const bool made_here = v >= i.result && v < i.result + i.results;
      if (!made_here || uses.count[static_cast<size_t>(v)] != 1) break;
      same_as[static_cast<size_t>(v)] = variable;
      vanishes[next] = true;
    }
  }
}

}  // namespace ebb::codegen
