// The step at which a second network, the refiner, takes over. The state is passed on without new
// noise, at a level that both runs share: stretch_of() of one list, before and after. Multistep
// samplers start anew.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// Each returns the refiner's first step; the number of steps if there is none.

// diffusers, and two experts (Wan 2.2): the first step at a timestep below `cutoff`.
int64_t switch_below(const std::vector<double>& timesteps, double cutoff);
// diffusers: the cutoff for denoising_end, or denoising_start, of [0, 1].
double timestep_cutoff(double share, int64_t timesteps = 1000);

// A1111: the first step at which the fraction of removed noise, by the nearest of the `table` of
// noise levels (rising), is at least `share`.
int64_t switch_by_level(const std::vector<double>& sigmas, const std::vector<double>& table,
                        double share);
// That fraction at a level.
double share_removed(double sigma, const std::vector<double>& table);
// The first step after at least the fraction `share` of the steps.
int64_t switch_by_steps(int64_t steps, double share);

}  // namespace ebb
