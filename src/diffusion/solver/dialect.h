// Dialect: the differences between well-known programs, as data. Samplers read properties of the
// dialect; nothing else in the code depends on the programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diffusion/solver/dialect_defaults.h"

namespace ebb {

struct Dialect {
  std::string name;
  std::string help;
  // The noise source (noise/noise.h) unless another is chosen.
  std::string noise = "ebb";
  // Levels whose relative difference is below this count as one: differences over the step between
  // them would be rounding errors. 0: only equal levels do.
  double least_step = 1e-6;
  // Samplers with churn draw noise in every step, used or not.
  bool draws_unused_churn = false;
  // heunpp2 does so, whatever the others do.
  bool draws_unused_heunpp2 = false;
  // euler_ancestral also draws in the step to 0, except on flow models.
  bool draws_unused_last = false;
  // Ancestral steps with alpha 1, dpm_fast and dpm_adaptive also draw at eta 0.
  bool draws_unused_eta = false;
  // dpmpp_sde does so too.
  bool draws_unused_sde = false;
  // On flow models ancestral steps keep x = (1 - sigma) data + sigma noise; else they add noise as
  // if alpha were 1.
  bool flow_ancestral = true;
  // So do res_multistep and dpmpp_2s_ancestral_cfg_pp.
  bool flow_res_ancestral = true;
  // Samplers that draw noise per substep also draw for empty substeps.
  bool draws_unused_substeps = false;
  // From flow's level 1 euler_ancestral_cfg_pp renews all noise, at any eta above 0.
  bool renews_all_from_1 = false;
  // dpmpp_2s_ancestral_cfg_pp uses the unconditional prediction of a step's midpoint in place of
  // that of its start, and then converges to a different limit.
  bool late_uncond_2s = false;
  // dpm_2_ancestral adds no noise after a step that went to level 0 before (eta above 1).
  bool no_noise_from_zero = false;
  // dpm_fast and dpm_adaptive, which end at the smallest level above 0, return the initial noise if
  // that is the first level; else they end with x = D.
  bool leaves_single_level = false;
  // The level at which uni_pc ends if the last level is 0; none: it ends with x = D.
  std::optional<double> uni_pc_last = {};
  // uni_pc's corrector with vary_coeff has an index error (solver/exponential.h).
  bool uni_pc_slips = false;
  // sa_solver also corrects before the last step, and orders drop to 1 for that one; else they drop
  // a step earlier, in runs that end at 0.
  bool sa_solver_corrects_last = false;
  // sa_solver draws in every step, whether it renews noise or not.
  bool draws_unused_sa = false;
  // Number of left points for the integrals of er_sde; none: nearly exact integrals.
  std::optional<int64_t> er_sde_points = {};
  // er_sde follows the stochastic equation at eta 0 too, without its noise; at any other eta it
  // adds all of it.
  bool er_sde_eta_switches = false;
  // Replaces flow's level 1 in er_sde, whose network is still evaluated at 1; 0:
  // SampleCall::first_sigma, at which it is evaluated.
  double er_sde_first = 0;
  // Samplers that remember slopes also use them in the step to 0; else it ends with x = D.
  bool multistep_to_zero = false;
  // ipndm_v weights three and four slopes as if steps were equal.
  bool equal_weights_above_two = false;
  // ddim and plms, which work on sqrt(alpha_bar) x, end at the level of timestep 0 instead of at 0
  // (their last alpha_bar is the table's first), and keep that factor.
  bool vp_ends_at_table = false;
  // tcd steps to integer timesteps, at the end to timestep 0; its result keeps that one's factor.
  bool vp_integer_timesteps = false;
  // lcm's D is that of a consistency function: near timestep 0 it becomes x.
  bool lcm_boundary = false;
  // lcm's network has only every so many-th timestep, to which levels are rounded, and its
  // consistency function goes to the noisy x without a factor. 0: neither.
  int64_t lcm_timesteps_apart = 0;
  // dpmpp_2s_ancestral and euler_ancestral_cfg_pp also draw at eta 0 in steps as if alpha were 1.
  bool draws_unused_ve = false;
  // dpmpp_2s_ancestral reuses the first prediction for the midpoint if flow's lambda is infinite;
  // else it evaluates at 0.9999.
  bool flow_2s_evaluates_once = false;
  // On flow models stochastic samplers, euler_cfg_pp and euler_ancestral_cfg_pp use lambda and
  // alpha of the flow; else as if alpha were 1.
  bool flow_sde = true;
  // Churn as if alpha were 1 (s_churn, eta of dpm_fast and dpm_adaptive) is accepted on flow
  // models; else refused.
  bool flow_churn = false;
  // dpmpp_2m uses flow's lambda on flow models; else -ln(sigma).
  bool flow_lambda_2m = false;
  // Ancestral steps on flow models take an eta above 1 as 1.
  bool clamps_eta = false;
  // Intervals of the midpoint rule for the coefficients of lms; none: exact integrals.
  std::optional<int64_t> lms_intervals = {};
  // Steps by which the slopes that lms remembers are newer than the ones their weights are for.
  int64_t lms_newer = 0;
  // Schedules take c_noise of a flow network's first and last level as times, so that these levels
  // are shifted twice.
  bool shifts_flow_twice = false;
  // c_noise is rounded to the nearest integer timestep, for networks with timesteps.
  bool integer_timesteps = false;
  // Schedules with their own list of levels return it even if more levels were requested.
  bool gives_fewer_levels = false;
  // Schedules that define partial denoising do it themselves; else the end of the full list is
  // used.
  bool schedules_know_shares = false;
  // Schedules compute table positions in f32: a result may round down to the position before, and
  // cumulative sums drift.
  bool f32_schedules = false;
  // Samplers that run on a list one level longer, whose last level above 0 is dropped.
  std::vector<std::string> discard_penultimate = {};
  DialectDefaults defaults = {};
};

// ebb (our own rules: no unused draws, corrected flow steps), kdiff (k-diffusion), comfy
// (ComfyUI), a1111 (Stable Diffusion web UI), diffusers, sdcpp (stable-diffusion.cpp).
const std::vector<Dialect>& all_dialects();
// Ignores case. Throws Error, suggests the nearest.
const Dialect& find_dialect(std::string_view name);

}  // namespace ebb
