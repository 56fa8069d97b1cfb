#include "capi/settle.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/start/strength.h"

namespace ebb::capi {
namespace {

bool sets(const OptionTexts& texts, std::string_view name) {
  return std::any_of(texts.begin(), texts.end(), [&](const auto& t) { return t.first == name; });
}

NetworkFacts settled_network(const RunChoice& c) {
  OptionTexts texts = c.network;
  const bool flow = c.space == Space::flow;
  if (flow && !sets(texts, "levels")) texts.insert(texts.begin(), {"levels", "flow"});
  NetworkFacts n = network_facts(read_options<NetworkOptions>(texts, "levels"));
  require(!c.space || *c.space == n.levels.space, "sampler: levels ", n.levels.name,
          " are of space ", name_of(n.levels.space), ", not ",
          name_of(c.space.value_or(Space::ve)));
  return n;
}

bool discards_penultimate(const RunChoice& c) {
  const std::vector<std::string>& names = find_dialect(c.dialect).discard_penultimate;
  const auto has = [&](const std::string& n) {
    return std::find(names.begin(), names.end(), n) != names.end();
  };
  return has(c.sampler) || has(find_sampler(c.sampler).sampler->name);
}

// For how many steps the list is made, and which of them run.
StartPlan plan_of(const RunChoice& c, const ListOptions& o, Space space) {
  const int64_t steps = c.schedule.steps;
  const auto plan = [&](double strength, bool exact) {
    return plan_strength(c.dialect, steps, strength, {.exact_steps = exact, .space = space});
  };
  // In dialects that have the rule it shows at half the way.
  require(!o.exact_steps || plan(0.5, true).steps != plan(0.5, false).steps, "sampler: dialect ",
          c.dialect, " has no exact_steps");
  if (!sets(c.schedule.list, "strength")) return {.steps = steps, .run = steps};
  return plan(o.strength, o.exact_steps);
}

std::vector<double> settled_levels(const RunChoice& c, const Discretisation& levels) {
  if (c.schedule.name.empty()) return c.sigmas;
  const auto o = read_options<ListOptions>(c.schedule.list, "schedule");
  ScheduleCall call{.steps = c.schedule.steps,
                    .sigma_min = o.sigma_min,
                    .sigma_max = o.sigma_max,
                    .options = c.schedule.options,
                    .dialect = c.dialect,
                    .discard_penultimate = discards_penultimate(c)};
  const StartPlan plan = plan_of(c, o, levels.space);
  std::vector<double> list;
  if (find_schedule(c.schedule.name).schedule->own_denoise) {  // knows what to do with a part
    call.denoise = o.strength;
    list = noise_levels(c.schedule.name, levels, call);
  } else {
    call.steps = plan.steps;
    list = noise_levels(c.schedule.name, levels, call);
    if (plan.run < plan.steps) list = planned_levels(list, plan);
  }
  Stretch stretch{.first = o.start_at_step, .finish = o.finish};
  if (o.end_at_step >= 0) stretch.last = o.end_at_step;
  return stretch_of(list, stretch);
}

}  // namespace

void ListOptions::check() const {
  require(sigma_min >= 0 && sigma_max >= 0, "schedule: sigma_min (", sigma_min, ") and sigma_max (",
          sigma_max, ") must not be negative");
  require(strength >= 0 && strength <= 1, "schedule: strength must lie in [0, 1] (", strength, ")");
  require(start_at_step >= 0 && end_at_step >= -1, "schedule: start_at_step (", start_at_step,
          ") and end_at_step (", end_at_step, ") must not be negative");
}

SettledRun settle(const RunChoice& c) {
  const Dialect& dialect = find_dialect(c.dialect);
  SettledRun r{.network = settled_network(c)};
  const Discretisation& levels = r.network.levels;
  r.call = {.sigmas = settled_levels(c, levels),
            .options = c.options,
            .space = levels.space,
            .dialect = c.dialect};
  // A thousandth of a tenth of the way in time: as near to noise alone as lambda is finite.
  if (levels.space == Space::flow) r.call.first_sigma = levels.at_percent(1e-4);
  r.whole_timesteps = dialect.whole_timesteps;
  r.whole_variance =
      !r.call.sigmas.empty() && starts_from_noise(c.dialect, r.call.sigmas[0], levels.sigma_max);
  if (c.network.empty()) return r;  // levels that the caller gives may be any
  if (levels.told == Told::table) r.call.table = levels.sigmas;
  if (levels.whole) r.call.round_sigma = [levels](double sigma) { return levels.round(sigma); };
  return r;
}

}  // namespace ebb::capi
