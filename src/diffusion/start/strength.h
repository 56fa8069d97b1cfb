// Strength (image to image): how many steps of which list run, and from which state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "diffusion/solver/space.h"

namespace ebb {

// The part of a list of levels that runs: levels [first, first + run], of a list for `steps` steps.
struct StartPlan {
  int64_t steps = 0, first = 0, run = 0;
};

struct StrengthOptions {
  // A1111's option to run the requested number of steps, on a correspondingly longer list.
  bool exact_steps = false;
  // diffusers' pipelines of flow models round differently.
  Space space = Space::ve;
};

// `strength` in [0, 1]: how much of the noise comes back; 1: all. By dialect:
//   ebb        the list has `steps` steps; the last round(strength steps) run
//   kdiff      as a1111, which wrapped it
//   comfy      denoise: the list has int(steps / strength) steps, the last `steps` run
//   a1111      the last int(min(strength, 0.999) steps) + 1 run
//   diffusers  the last min(int(strength steps), steps) run; on flow models all but the first
//              int(steps - min(strength steps, steps))
//   sdcpp      the last int(strength steps) + 1, at most `steps`, run; in f32
// At strength 0 nothing runs, but for a1111 and sdcpp: one step. Throws Error.
StartPlan plan_strength(std::string_view dialect, int64_t steps, double strength,
                        const StrengthOptions& options = {});

// The levels of a plan. `sigmas` may have another length than plan.steps + 1 (schedules do): its
// end is used. One level, or none, is left if nothing runs.
std::vector<double> planned_levels(const std::vector<double>& sigmas, const StartPlan& plan);

// A range of a run: levels [first, last], both counted from the start; last may lie beyond. With
// `finish` a range that ends early still ends at 0.
struct Stretch {
  int64_t first = 0;
  std::optional<int64_t> last = {};
  bool finish = false;
};
std::vector<double> stretch_of(const std::vector<double>& sigmas, const Stretch& s);

// ---- states --------------------------------------------------------------------------------

struct StartOptions {
  Space space = Space::ve;
  // For pure noise: its variance is that of data and noise, 1 + sigma^2.
  bool full_variance = false;
  double noise_scale = 1;  // multiplies the noise, for models that need it
  // The level that `data` is noised to, if it is another than the first of the run: as
  // sqrt(alpha_bar) x that state is taken for one of the first level.
  std::optional<double> noised_at = {};
  // A1111's "extra noise": this much of the same noise in addition, unscaled at any level.
  double extra_noise = 0;
};
// The state at `sigma` from `data` and standard normal `noise`; either may be empty: 0. ve: data +
// sigma noise; flow: (1 - sigma) data + sigma noise. `out` may be `data`.
template <class T>
void start_state(std::span<const T> data, std::span<const T> noise, double sigma,
                 const StartOptions& options, std::span<T> out);
// Its inverse at the end of a run that stopped at noise level `sigma`, for another run that starts
// without noise: flow: x / (1 - sigma).
template <class T>
void finish_state(std::span<T> x, double sigma, Space space);

struct FirstNoise {
  std::string_view dialect;
  double sigma = 0, sigma_max = 0;  // of the run and of the model, the largest ones
  std::string_view sampler = {};    // by any of its names; "": one that works in sigma
  bool has_data = false;            // a latent is given
  bool leading = false;             // diffusers: timestep_spacing is "leading"
};
// StartOptions::full_variance, by dialect:
//   comfy      where sigma is within 1e-5 of the model's largest or above, with data or without
//   a1111      without data: its samplers of timesteps (ddim, ddim_cfg_pp, plms, uni_pc), which
//              start from noise as sqrt(alpha_bar) x
//   diffusers  without data: all, but those that reckon with sigma (euler, heun, dpm_2, lms, their
//              ancestral ones and dpmpp_sde) unless timesteps are "leading"
//   others     never
bool starts_from_noise(const FirstNoise& first);

}  // namespace ebb
