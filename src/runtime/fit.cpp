#include "runtime/fit.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/names.h"
#include "ir/op.h"
#include "passes/schedule/near_readers.h"

namespace ebb {
namespace {

// `facts` are of the original nodes.
Fitted planned(const Recomputed& nodes, const std::vector<NodeMemory>& facts,
               const RecomputeCount& count) {
  NearReaders placed = near_readers(nodes.graph);
  Fitted out{.nodes = {std::move(placed.graph), {}}, .memory = {}, .count = count};
  for (const size_t i : placed.origin) out.nodes.origin.push_back(nodes.origin[i]);
  const Node* first = out.nodes.graph.nodes().data();
  out.memory = plan_memory(out.nodes.graph, [&](const Node& n) {
    return facts[out.nodes.origin[static_cast<size_t>(&n - first)]];
  });
  return out;
}

// The graph without recompute; it need not have a loss.
Recomputed as_it_is(const Graph& g) {
  Recomputed out{g, std::vector<size_t>(g.nodes().size())};
  std::iota(out.origin.begin(), out.origin.end(), size_t{0});
  return out;
}

// Plans for any recompute count.
class Planner {
 public:
  Planner(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r)
      : facts_(facts), recomputable_(g, r.loss) {}

  RecomputeCount most() const { return recomputable_.most(); }
  Fitted at(const RecomputeCount& count) const {
    return planned(recomputable_.with(count), facts_, count);
  }

 private:
  const std::vector<NodeMemory>& facts_;
  Recomputable recomputable_;
};

// The budget of the arena. The rest of free memory is for samples in flight and for the driver.
int64_t room(const Graph& g, const Recompute& r, int64_t free, int64_t driver) {
  return (r.bytes > 0 ? r.bytes - driver : free / 10 * 9) - source_bytes(g) - r.beside;
}

// Whether the arena fits.
bool fits(const Fitted& f, int64_t bytes) { return f.memory.arena_bytes <= bytes; }

// Recomputing more mostly needs less memory: bisects between `few`, which does not fit, and
// `enough`, for which `best` does. `at` plans for a number.
Fitted least(int64_t few, int64_t enough, Fitted best, int64_t bytes,
             const std::function<Fitted(int64_t)>& at) {
  while (enough - few > 1) {
    const int64_t middle = (few + enough) / 2;
    Fitted f = at(middle);
    (fits(f, bytes) ? enough : few) = middle;
    if (fits(f, bytes)) best = std::move(f);
  }
  return best;
}

std::optional<Fitted> fit_pointwise(const Planner& plans, int64_t bytes) {
  const int64_t most = plans.most().pointwise;
  const auto at = [&](int64_t n) { return plans.at({.pointwise = n}); };
  if (Fitted none = at(0); fits(none, bytes)) return none;
  Fitted all = at(most);
  if (!fits(all, bytes)) return {};
  return least(0, most, std::move(all), bytes, at);
}

// All pointwise values, and blocks.
Fitted fit_blocks(const Planner& plans, int64_t bytes) {
  const RecomputeCount most = plans.most();
  const auto at = [&](int64_t n) { return plans.at({.pointwise = most.pointwise, .blocks = n}); };
  Fitted all = at(most.blocks);
  return fits(all, bytes) ? least(-1, most.blocks, std::move(all), bytes, at) : all;
}

}  // namespace

Recompute parse_recompute(std::string_view given) {
  using Kind = Recompute::Kind;
  const std::string text = small_letters(given);
  if (text == "off") return {};
  if (text == "pointwise") return {.kind = Kind::pointwise};
  if (text == "all") return {.kind = Kind::all};
  if (text == "auto") return {.kind = Kind::fit};
  if (const auto bytes = parse_size(text)) return {.kind = Kind::fit, .bytes = *bytes};
  const bool no_unit = parse_size(text + "GB").has_value();
  const std::string known[] = {"off", "pointwise", "all", "auto"};
  const std::string near = nearest_name(text, known);
  fail("recompute: must be off, pointwise, all, auto or a size like 8GB or 500MB ('", given, "'",
       no_unit ? ", which has no unit)" : ")",
       near.empty() ? "" : " (did you mean '" + near + "'?)");
}

std::vector<LoweringMode> lowering_modes(const Recompute& r) {
  using Kind = Recompute::Kind;
  if (r.kind == Kind::off) return {LoweringMode::no_recompute};
  if (r.kind == Kind::pointwise) return {LoweringMode::pointwise};
  if (r.kind == Kind::all) return {LoweringMode::blocks};
  return {LoweringMode::no_recompute, LoweringMode::pointwise, LoweringMode::blocks};
}

std::optional<Fitted> fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                          LoweringMode mode, int64_t free, int64_t driver) {
  using Kind = Recompute::Kind;
  if (r.kind == Kind::off) return planned(as_it_is(g), facts, {});
  const Planner plans(g, facts, r);
  const RecomputeCount most = plans.most();
  if (r.kind == Kind::pointwise) return plans.at({.pointwise = most.pointwise});
  if (r.kind == Kind::all) return plans.at(most);
  const int64_t bytes = room(g, r, free, driver);
  if (mode != LoweringMode::blocks) return fit_pointwise(plans, bytes);
  Fitted out = fit_blocks(plans, bytes);
  require(r.bytes == 0 || fits(out, bytes), "recompute: a run does not fit into ",
          r.bytes / 1000000, " MB: with all ", most.blocks, " blocks computed again it needs ",
          (out.memory.arena_bytes + source_bytes(g) + r.beside + driver + 999999) / 1000000, " MB",
          driver > 0 ? str(" (driver ", driver / 1000000, " MB)") : std::string(), "; ",
          advice_on_memory(g, true));
  return out;
}

std::string advice_on_memory(const Graph& g, bool recomputed) {
  const bool wide = std::ranges::any_of(g.nodes(), [&](const Node& n) {
    return n.op->matrix_work && g.type(n.in[0]).dtype == DType::f32;
  });
  return str("a smaller --batch", recomputed ? "" : ", --recompute auto",
             wide ? ", --dtype bf16" : "",
             " or more --accumulation needs less, as does a smaller network");
}

}  // namespace ebb
