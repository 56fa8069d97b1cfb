#include "pipeline/resolved_run.h"

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/start/levels_of_run.h"
#include "diffusion/start/strength.h"

namespace ebb {

ResolvedRun resolve_run(const RunWords& w, const Discretisation& known) {
  const LevelsOfRun levels{.sampler = w.sampler,
                           .schedule = w.schedule,
                           .steps = w.steps,
                           .options = parse_options(w.schedule_options, w.schedule),
                           .dialect = w.dialect,
                           .strength = w.strength,
                           .exact_steps = w.exact_steps,
                           .usual = w.usual};
  ResolvedRun r;
  r.call = {.sigmas = levels_with_steps(levels, known),
            .options = parse_options(w.options, w.command + ": --options"),
            .dialect = w.dialect};
  fit_to_network(r.call, known);
  if (w.strength && w.dialect == "a1111") {
    LevelsOfRun whole = levels;
    whole.steps = plan_strength(w.dialect, w.steps, *w.strength,
                                {.exact_steps = w.exact_steps, .space = known.space})
                      .steps;
    whole.strength.reset();
    r.noise_levels = levels_of_run(whole, known);
  }
  const Dialect& dialect = find_dialect(w.dialect);
  r.schedule = schedule_of_run(levels, known);
  r.own_steps = find_schedule(r.schedule, dialect).schedule->own_count;
  r.timesteps_apart = timesteps_apart(w.dialect, w.sampler, known);
  r.noised_at = noise_level_of_run(levels, known);
  r.full_variance = starts_from_noise({.dialect = w.dialect,
                                       .sigma = r.call.sigmas[0],
                                       .sigma_max = known.sigma_max,
                                       .sampler = w.sampler,
                                       .has_data = w.strength.has_value(),
                                       .leading = spaced_leading(levels, known)});
  r.sampler = choose_sampler(w.sampler, r.call);
  require(!w.steps_given || !r.own_steps, w.command, ": --steps does nothing with --schedule ",
          r.schedule, ", which has its own number of them");
  require(!w.steps_given || !r.sampler.sampler->adaptive, w.command,
          ": --steps does nothing with --sampler ", w.sampler,
          ", which chooses its own steps (its option rtol says how fine)");
  return r;
}

}  // namespace ebb
