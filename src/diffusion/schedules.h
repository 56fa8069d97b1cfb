// Schedules: at which noise levels a sampler stops. src/diffusion/schedules/<s>.cpp defines
// `const Schedule& ebb::schedules::<s>()`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "diffusion/precond.h"

namespace ebb {

struct ScheduleOptions {
  int64_t steps = 18;
  double rho = 7;
  double sigma_min = 0, sigma_max = 0;
  void fields(auto&& f) {
    f("steps", steps, "noise levels above 0");
    f("rho", rho, "karras: how much closer together the small levels lie");
    f("sigma_min", sigma_min, "smallest noise level above 0; 0: the schedule's own");
    f("sigma_max", sigma_max, "largest noise level; 0: the schedule's own");
  }
};

struct Schedule {
  std::string name;
  std::string help;
  double sigma_min = 0, sigma_max = 0;  // its own; within what the network knows
  // options.steps levels, falling from sigma_max to sigma_min, both resolved.
  std::vector<double> (*levels)(const ScheduleOptions& options, const Precond& precond) = nullptr;
};

// steps + 1 falling levels, the last one 0. sigma_min and sigma_max of the options come before
// those of the preconditioning's config, and these before the schedule's. Levels are rounded to
// those the network knows. Throws Error if they do not fit it or are too many.
std::vector<double> noise_levels(const Schedule& schedule, ScheduleOptions options,
                                 const Precond& precond);

// The value at `i` of `count` from a to b, both included; a if there is only one.
double spaced(double a, double b, int64_t i, int64_t count);

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Schedule*>& all_schedules();
const Schedule& find_schedule(std::string_view name);  // throws Error, suggests the nearest
// What the network was published with: karras, vp, ve, iddpm, or timesteps.
const Schedule& default_schedule(const DiffusionConfig& config);

}  // namespace ebb
