// Where a second network takes over. The state is handed over as it is, without new noise, at a
// level that both runs share: stretch_of() of one list, before and after. Samplers that remember
// steps start anew.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// Each returns the first step that the second network makes; the number of steps if none.

// diffusers, and two experts (Wan 2.2): the first step at a timestep below `cutoff`.
int64_t switch_below(const std::vector<double>& timesteps, double cutoff);
// diffusers: the cutoff for denoising_end, or denoising_start, of [0, 1].
double timestep_cutoff(double share, int64_t timesteps = 1000);

// A1111: the first step where the share of noise that is gone, by the nearest of the `table` of
// noise levels (rising), is at least `share`.
int64_t switch_by_level(const std::vector<double>& sigmas, const std::vector<double>& table,
                        double share);
// The first step where at least `share` of the steps are made.
int64_t switch_by_steps(int64_t steps, double share);

}  // namespace ebb
