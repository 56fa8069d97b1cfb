// Timesteps of discrete-time networks for samplers: levels between those of a table, by
// interpolation in ln(sigma), and the last step of samplers made for such networks.
#pragma once

#include <vector>

#include "diffusion/solver/run.h"

namespace ebb {

// Levels of the 1000 timesteps of Stable Diffusion, rising.
const std::vector<double>& stable_diffusion_table();
// SampleCall::table, or that of Stable Diffusion if the call has none.
const std::vector<double>& table_of(const Run& run);

// Within the table's ends.
double timestep_of(const std::vector<double>& table, double sigma);
double sigma_at(const std::vector<double>& table, double timestep);

// Of every `apart`-th timestep, the last one among them: their levels, rising, and the one that is
// nearest to sigma by ln(sigma).
std::vector<double> every_timestep(int64_t apart, const std::vector<double>& table);
double nearest_timestep(const std::vector<double>& table, double sigma, int64_t apart = 1);

// Where a step of a sampler for sqrt(alpha_bar) x goes. In dialects in which such samplers end at
// timestep 0, a step to level 0 goes there instead, and what comes out is left multiplied by
// sqrt(alpha_bar).
struct VpTarget {
  double sigma = 0, scale = 1;
};
VpTarget vp_target(const Run& run, double from, double to);

}  // namespace ebb
