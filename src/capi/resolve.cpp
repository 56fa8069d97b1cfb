#include "capi/resolve.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/start/levels_of_run.h"
#include "diffusion/start/strength.h"

namespace ebb::capi {
namespace {

bool sets(const OptionTexts& texts, std::string_view name) {
  return std::any_of(texts.begin(), texts.end(), [&](const auto& t) { return t.first == name; });
}

NetworkFacts resolved_network(const RunChoice& c) {
  OptionTexts texts = c.network;
  const bool flow = c.space == Space::flow;
  if (flow && !sets(texts, "levels")) texts.insert(texts.begin(), {"levels", "flow"});
  NetworkFacts n = network_facts(read_options<NetworkOptions>(texts, "levels"));
  require(!c.space || *c.space == n.levels.space, "sampler: levels ", n.levels.name,
          " are of space ", name_of(n.levels.space), ", not ",
          name_of(c.space.value_or(Space::ve)));
  return n;
}

// In dialects that have the rule it shows at half the way.
bool has_exact_steps(const std::string& dialect) {
  const auto steps = [&](bool exact) {
    return plan_strength(dialect, 20, 0.5, {.exact_steps = exact}).steps;
  };
  return steps(true) != steps(false);
}

LevelsOfRun levels_asked(const RunChoice& c, const ListOptions& o) {
  LevelsOfRun run{.sampler = c.sampler,
                  .schedule = c.schedule.name,
                  .steps = c.schedule.steps,
                  .options = c.schedule.options,
                  .dialect = c.dialect,
                  .sigma_min = o.sigma_min,
                  .sigma_max = o.sigma_max,
                  .exact_steps = o.exact_steps};
  if (sets(c.schedule.list, "strength")) run.strength = o.strength;
  return run;
}

// Throws Error for stretches that no run can have; one of no steps is what a refiner is left of
// where it has none.
Stretch stretch_asked(const ListOptions& o, int64_t steps) {
  const int64_t last = o.end_at_step < 0 ? steps : o.end_at_step;
  require(o.start_at_step <= steps, "schedule: start_at_step (", o.start_at_step,
          ") lies behind all steps (", steps, ")");
  require(o.start_at_step <= last, "schedule: start_at_step (", o.start_at_step,
          ") must not lie behind end_at_step (", last, ")");
  return {.first = o.start_at_step, .last = last, .finish = o.finish};
}

void resolve_levels(ResolvedRun& r, const RunChoice& c) {
  r.call.sigmas = c.sigmas;
  if (c.schedule.name.empty()) return;
  const auto o = read_options<ListOptions>(c.schedule.list, "schedule");
  require(!o.exact_steps || has_exact_steps(c.dialect), "sampler: dialect ", c.dialect,
          " has no exact_steps");
  const LevelsOfRun run = levels_asked(c, o);
  const std::vector<double> all = levels_of_run(run, r.network.levels);
  r.call.sigmas = stretch_of(all, stretch_asked(o, static_cast<int64_t>(all.size()) - 1));
  r.leading = spaced_leading(run, r.network.levels);
  if (o.start_at_step == 0) r.noised_at = noise_level_of_run(run, r.network.levels);
}

}  // namespace

void ListOptions::check() const {
  require(sigma_min >= 0 && sigma_max >= 0, "schedule: sigma_min (", sigma_min, ") and sigma_max (",
          sigma_max, ") must not be negative");
  require(strength >= 0 && strength <= 1, "schedule: strength must lie in [0, 1] (", strength, ")");
  require(start_at_step >= 0 && end_at_step >= -1, "schedule: start_at_step (", start_at_step,
          ") and end_at_step (", end_at_step, ") must not be negative");
}

ResolvedRun resolve(const RunChoice& c) {
  ResolvedRun r{.network = resolved_network(c)};
  const Discretisation& levels = r.network.levels;
  r.call = {.sigmas = {}, .options = c.options, .dialect = c.dialect};
  resolve_levels(r, c);
  fit_to_network(r.call, levels);
  if (!r.call.sigmas.empty()) check_levels(r.call.sigmas, r.call.space);
  r.timesteps_apart = timesteps_apart(c.dialect, c.sampler, levels);
  return r;
}

}  // namespace ebb::capi
