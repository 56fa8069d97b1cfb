#include "runtime/fit.h"

#include <charconv>
#include <functional>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

Fitted planned(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
               const Again& again) {
  Fitted out{.nodes = recompute(g, r.loss, again), .memory = {}, .again = again};
  const Node* first = out.nodes.graph.nodes().data();
  out.memory = plan_memory(out.nodes.graph, [&](const Node& n) {
    return facts[out.nodes.origin[static_cast<size_t>(&n - first)]];
  });
  return out;
}

// What the arena may have. The rest of what is free is for samples on the way and for what the
// driver takes.
int64_t room(const Graph& g, const Recompute& r, int64_t free) {
  return (r.bytes > 0 ? r.bytes : free / 10 * 9) - source_bytes(g);
}

// With more computed again a plan mostly gets smaller: what halving finds between `few`, which does
// not fit, and `enough`, which does, is near the least. `at` plans for a number.
Fitted least(int64_t few, int64_t enough, Fitted best, int64_t bytes,
             const std::function<Fitted(int64_t)>& at) {
  while (enough - few > 1) {
    const int64_t middle = (few + enough) / 2;
    Fitted f = at(middle);
    const bool fits = f.memory.arena_bytes <= bytes;
    (fits ? enough : few) = middle;
    if (fits) best = std::move(f);
  }
  return best;
}

}  // namespace

Recompute parse_recompute(std::string_view text) {
  using Kind = Recompute::Kind;
  if (text == "off") return {};
  if (text == "formulas") return {.kind = Kind::formulas};
  if (text == "all") return {.kind = Kind::all};
  if (text == "auto") return {.kind = Kind::fit};
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  if (fault == std::errc() && number > 0 && number < 1e9 && (unit == "GB" || unit == "MB"))
    return {.kind = Kind::fit, .bytes = static_cast<int64_t>(number * (unit == "GB" ? 1e9 : 1e6))};
  const bool no_unit = fault == std::errc() && unit.empty();
  const std::string known[] = {"off", "formulas", "all", "auto"};
  const std::string near = nearest_name(text, known);
  fail("recompute: must be off, formulas, all, auto or a size like 8GB or 500MB ('", text, "'",
       no_unit ? ", which has no unit)" : ")",
       near.empty() ? "" : " (did you mean '" + near + "'?)");
}

std::optional<Fitted> fit_formulas(const Graph& g, const std::vector<NodeMemory>& facts,
                                   const Recompute& r, int64_t free) {
  const int64_t most = most_again(g, r.loss).formulas, bytes = room(g, r, free);
  const auto at = [&](int64_t n) { return planned(g, facts, r, {.formulas = n}); };
  if (r.kind == Recompute::Kind::formulas) return at(most);
  Fitted none = at(0), all = at(most);
  if (none.memory.arena_bytes <= bytes) return none;
  if (all.memory.arena_bytes > bytes) return std::nullopt;
  return least(0, most, std::move(all), bytes, at);
}

Fitted fit_blocks(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                  int64_t free) {
  const Again most = most_again(g, r.loss);
  const int64_t bytes = room(g, r, free);
  const auto at = [&](int64_t n) {
    return planned(g, facts, r, {.formulas = most.formulas, .blocks = n});
  };
  Fitted all = at(most.blocks);
  if (r.kind == Recompute::Kind::all) return all;
  const bool fits = all.memory.arena_bytes <= bytes;
  require(fits || r.bytes == 0, "recompute: a run does not fit into ", r.bytes / 1000000,
          " MB: with all ", most.blocks, " blocks computed again it needs ",
          (all.memory.arena_bytes + source_bytes(g) + 999999) / 1000000,
          " MB; a smaller batch, more accumulation or bf16 in place of f32 needs less");
  return fits ? least(-1, most.blocks, std::move(all), bytes, at) : all;
}

}  // namespace ebb
