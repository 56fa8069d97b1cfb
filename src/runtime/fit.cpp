#include "runtime/fit.h"

#include <charconv>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

Fitted fit_blocks(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                  int64_t blocks) {
  Fitted out{.nodes = recompute(g, r.loss, blocks), .memory = {}, .blocks = blocks};
  const Node* first = out.nodes.graph.nodes().data();
  out.memory = plan_memory(out.nodes.graph, [&](const Node& n) {
    return facts[out.nodes.origin[static_cast<size_t>(&n - first)]];
  });
  return out;
}

}  // namespace

Recompute parse_recompute(std::string_view text) {
  using Kind = Recompute::Kind;
  if (text == "off") return {};
  if (text == "all") return {.kind = Kind::all};
  if (text == "auto") return {.kind = Kind::fit};
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  if (fault == std::errc() && number > 0 && number < 1e9 && (unit == "GB" || unit == "MB"))
    return {.kind = Kind::fit, .bytes = static_cast<int64_t>(number * (unit == "GB" ? 1e9 : 1e6))};
  const bool no_unit = fault == std::errc() && unit.empty();
  const std::string known[] = {"off", "all", "auto"};
  const std::string near = nearest_name(text, known);
  fail("recompute: must be off, all, auto or a size like 8GB or 500MB ('", text, "'",
       no_unit ? ", which has no unit)" : ")",
       near.empty() ? "" : " (did you mean '" + near + "'?)");
}

Fitted fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r, int64_t free) {
  const int64_t most = recompute_blocks(g, r.loss);
  if (r.kind == Recompute::Kind::all) return fit_blocks(g, facts, r, most);
  // The rest of what is free is for samples on the way and for what the driver takes.
  const int64_t bytes = (r.bytes > 0 ? r.bytes : free / 10 * 9) - source_bytes(g);
  const auto fits = [&](const Fitted& f) { return f.memory.arena_bytes <= bytes; };
  Fitted best = fit_blocks(g, facts, r, 0);
  if (fits(best)) return best;
  best = fit_blocks(g, facts, r, most);
  require(fits(best) || r.bytes == 0, "recompute: a run does not fit into ", r.bytes / 1000000,
          " MB: with all ", most, " blocks computed again it needs ",
          (best.memory.arena_bytes + source_bytes(g) + 999999) / 1000000,
          " MB; a smaller --batch, more --accumulation or --dtype bf16 needs less");
  if (!fits(best)) return best;
  // With more blocks a plan mostly gets smaller: what is found is near the fewest.
  for (int64_t too_few = 0; best.blocks - too_few > 1;) {
    Fitted middle = fit_blocks(g, facts, r, (too_few + best.blocks) / 2);
    if (fits(middle))
      best = std::move(middle);
    else
      too_few = middle.blocks;
  }
  return best;
}

}  // namespace ebb
