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

// The web UI's samplers of timesteps, on the schedule that is theirs there. That a picture names it
// makes no difference.
bool is_web_ui_of_timesteps(const LevelsOfRun& run, const Discretisation& levels) {
  if (!start_dialect(run.dialect).lists_timesteps || levels.c_noise != CNoise::table ||
      !is_of_timesteps(run.sampler) || !run.options.empty())
    return false;
  const Dialect& dialect = find_dialect(run.dialect);
  const std::string& sampler = find_sampler(run.sampler).sampler->name;
  const FoundSchedule own =
      find_schedule(usual_schedule(run.dialect, sampler, levels.space), dialect);
  const FoundSchedule asked = find_schedule(schedule_of_run(run, levels), dialect);
  return own.schedule == asked.schedule && own.options == asked.options;
}

// Every k-th timestep of a table from the second on, rising: those of its samplers of timesteps.
std::vector<size_t> web_ui_timesteps(int64_t steps, const Discretisation& levels) {
  const auto count = static_cast<int64_t>(levels.sigmas.size());
  require(steps >= 1, "schedule: needs at least one step (", steps, ")");
  std::vector<size_t> out;
  for (int64_t t = 0; t < count; t += std::max<int64_t>(count / steps, 1))
    out.push_back(static_cast<size_t>(std::min(t + 1, count - 1)));
  return out;
}

StartPlan planned(const LevelsOfRun& run, const Discretisation& levels) {
  return plan_strength(run.dialect, run.steps, *run.strength,
                       {.exact_steps = run.exact_steps, .space = levels.space});
}

// DDIM and PLMS make a step less than there are of these timesteps, and end at the first of them.
// UniPC makes as many steps, evenly spaced to the table's first. From data they take those before
// the one to whose level that is noised (noise_level_of_run).
std::vector<double> levels_of_timesteps(const LevelsOfRun& run, const Discretisation& levels) {
  const StartPlan plan =
      run.strength ? planned(run, levels) : StartPlan{.steps = run.steps, .run = run.steps};
  std::vector<size_t> steps = web_ui_timesteps(plan.steps, levels);
  if (run.strength) steps.resize(std::min(steps.size(), static_cast<size_t>(plan.run - 1)));
  if (steps.empty()) return {};
  if (means_sampler("uni_pc", run.sampler)) {
    const double first =
        static_cast<double>(steps.back() + 1) / static_cast<double>(levels.sigmas.size());
    return noise_levels("time_uniform", levels,
                        {.steps = static_cast<int64_t>(steps.size()),
                         .options = {{"first", run.strength ? str(first) : "1"}},
                         .dialect = run.dialect});
  }
  std::vector<double> out;
  for (size_t i = steps.size(); i-- > 0;) out.push_back(levels.sigmas[steps[i]]);
  if (out.size() == 1 && !run.strength) out.push_back(0);  // it would return the noise as it is
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

int64_t timesteps_apart(std::string_view dialect, std::string_view sampler,
                        const Discretisation& levels) {
  const Dialect& d = find_dialect(dialect);
  if (d.lcm_timesteps_apart > 0 && levels.c_noise == CNoise::table && !sampler.empty() &&
      means_sampler("lcm", sampler))
    return d.lcm_timesteps_apart;
  return d.integer_timesteps ? 1 : 0;
}

std::optional<double> noise_level_of_run(const LevelsOfRun& run, const Discretisation& levels) {
  if (!run.strength || !is_web_ui_of_timesteps(run, levels)) return {};
  const StartPlan plan = planned(run, levels);
  return levels.sigmas[web_ui_timesteps(plan.steps, levels).at(static_cast<size_t>(plan.run - 1))];
}

void check_no_options(const OptionTexts& options, std::string_view schedule) {
  require(options.empty(), "schedule: auto has no options; give its name, ", schedule, " here (",
          options.empty() ? "" : options[0].first, ")");
}

std::vector<double> levels_of_run(const LevelsOfRun& run, const Discretisation& network) {
  const int64_t apart = timesteps_apart(run.dialect, run.sampler, network);
  const Discretisation levels = apart > 1 ? every(apart, network) : network;
  const std::string schedule = schedule_of_run(run, levels);
  if (run.schedule == "auto") check_no_options(run.options, schedule);
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
  if (is_web_ui_of_timesteps(run, levels)) return levels_of_timesteps(run, levels);
  if (own || !run.strength) return noise_levels(schedule, levels, call);
  const StartPlan plan = planned(run, levels);
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
