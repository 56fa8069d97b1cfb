#include "diffusion/start/levels_of_run.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/solver/sampler_names.h"
#include "diffusion/start/start_dialect.h"
#include "diffusion/start/strength.h"

namespace ebb {
namespace {

bool discards_penultimate(const LevelsOfRun& run) {
  const std::vector<std::string>& names = find_dialect(run.dialect).discard_penultimate;
  const auto has = [&](const std::string& n) {
    return std::find(names.begin(), names.end(), n) != names.end();
  };
  return has(run.sampler) || has(find_sampler(run.sampler).sampler->name);
}

// The web UI's samplers of timesteps, each of which takes every k-th of the network's, whatever the
// menu of schedules says. DDIM and PLMS make a step less than there are of these, and end at the
// smallest; UniPC makes as many.
std::vector<double> levels_of_timesteps(ScheduleCall call, std::string_view schedule,
                                        std::string_view sampler, const Discretisation& levels) {
  const auto table = static_cast<int64_t>(levels.sigmas.size());
  const bool to_zero = means_sampler("uni_pc", sampler);
  if (to_zero && call.steps >= 1 && call.steps <= table) {
    const int64_t step = table / call.steps;
    call.steps = (table + step - 1) / step;
  }
  std::vector<double> out = noise_levels(schedule, levels, call);
  if (!to_zero && out.size() > 2 && out.back() == 0) out.pop_back();
  return out;
}

}  // namespace

std::string schedule_of_run(const LevelsOfRun& run, const Discretisation& levels) {
  if (run.schedule != "auto") return run.schedule;
  const std::string usual = usual_schedule(run.dialect, run.sampler, levels.space);
  if (!usual.empty()) {
    const auto space = find_schedule(usual, find_dialect(run.dialect)).schedule->space;
    if (!space || *space == levels.space) return usual;
  }
  if (!run.usual.empty()) return run.usual;
  if (levels.space == Space::flow) return "flow";
  return levels.c_noise == CNoise::table ? "normal" : "karras";
}

bool spaced_leading(const LevelsOfRun& run, const Discretisation& levels) {
  const FoundSchedule found =
      find_schedule(schedule_of_run(run, levels), find_dialect(run.dialect));
  std::string spacing;
  for (const Option& o : found.schedule->options())
    if (o.name == "spacing") spacing = o.value;
  for (const OptionTexts* texts : {&found.options, &run.options})
    for (const auto& [name, value] : *texts)
      if (name == "spacing") spacing = value;
  return spacing == "leading";
}

std::vector<double> levels_of_run(const LevelsOfRun& run, const Discretisation& levels) {
  const std::string schedule = schedule_of_run(run, levels);
  require(run.schedule != "auto" || run.options.empty(),
          "schedule: auto has no options; give its name, ", schedule, " here (",
          run.options.empty() ? "" : run.options[0].first, ")");
  ScheduleCall call{.steps = run.steps,
                    .sigma_min = run.sigma_min,
                    .sigma_max = run.sigma_max,
                    .options = run.options,
                    .dialect = run.dialect,
                    .discard_penultimate = discards_penultimate(run)};
  // Schedules that know what to do with a part of the way, and whole ways, are taken as they are;
  // of no way at all there is nothing to know.
  const Dialect& dialect = find_dialect(run.dialect);
  const bool own = dialect.schedules_know_shares &&
                   find_schedule(schedule, dialect).schedule->own_denoise &&
                   run.strength.value_or(1) > 0;
  if (own) call.denoise = run.strength.value_or(1);
  if (run.dialect == "a1111" && run.schedule == "auto" && !run.strength &&
      levels.c_noise == CNoise::table && is_of_timesteps(run.sampler))
    return levels_of_timesteps(std::move(call), schedule, run.sampler, levels);
  if (own || !run.strength) return noise_levels(schedule, levels, call);
  const StartPlan plan = plan_strength(run.dialect, run.steps, *run.strength,
                                       {.exact_steps = run.exact_steps, .space = levels.space});
  call.steps = plan.steps;
  return planned_levels(noise_levels(schedule, levels, call), plan);
}

void fit_to_network(SampleCall& call, const Discretisation& levels) {
  call.space = levels.space;
  call.table = levels.c_noise == CNoise::table ? levels.sigmas : std::vector<double>{};
  call.round_sigma = nullptr;
  if (levels.discrete_only)
    call.round_sigma = [levels](double sigma) { return levels.round(sigma); };
  // ComfyUI's, a ten-thousandth of the way from noise to data.
  if (levels.space == Space::flow) call.first_sigma = levels.at_percent(1e-4);
}

std::vector<double> levels_with_steps(const LevelsOfRun& run, const Discretisation& levels) {
  std::vector<double> sigmas = levels_of_run(run, levels);
  require(sigmas.size() >= 2 || !run.strength, "schedule: a strength of ", run.strength.value_or(0),
          " leaves none of ", run.steps,
          " steps to run; a larger strength or more steps leave some");
  require(sigmas.size() >= 2, "schedule: ", schedule_of_run(run, levels),
          " gives no step here: a run goes from one noise level to another (got ", sigmas.size(),
          sigmas.empty() ? "" : str(", ", sigmas[0]), ")");
  return sigmas;
}

}  // namespace ebb
