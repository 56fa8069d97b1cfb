// Dialect: what the programs that people know do differently, as data. A sampler asks the dialect;
// nothing else in the code knows the programs.
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
  // The source of its numbers (noise/noise.h) unless another is chosen.
  std::string noise = "ebb";
  // Levels that are nearer than this share of them are one: differences over the step between them
  // would be rounding. 0: only equal ones are.
  double least_step = 1e-6;
  // Numbers are drawn in every step of samplers that renew noise, used or not.
  bool draws_unused_churn = false;
  // heunpp2 does so, whatever the others do.
  bool draws_unused_heunpp2 = false;
  // euler_ancestral draws in the step to 0 as well, but not on flow models.
  bool draws_unused_last = false;
  // Ancestral steps with alpha 1, dpm_fast and dpm_adaptive draw at eta 0 too.
  bool draws_unused_eta = false;
  // dpmpp_sde does so too.
  bool draws_unused_sde = false;
  // On flow models ancestral steps keep x = (1 - sigma) data + sigma noise; else they add noise as
  // if alpha were 1.
  bool flow_ancestral = true;
  // So do res_multistep and dpmpp_2s_ancestral_cfg_pp.
  bool flow_res_ancestral = true;
  // Samplers whose noise is for parts of a step draw for parts that are empty too.
  bool draws_unused_substeps = false;
  // From flow's level 1 euler_ancestral_cfg_pp renews all noise, whatever eta above 0 is.
  bool renews_all_from_1 = false;
  // dpmpp_2s_ancestral_cfg_pp takes the answer without condition of a step's middle where that of
  // its start belongs: it then converges to something else.
  bool late_uncond_2s = false;
  // dpm_2_ancestral adds no noise after a step that went to level 0 before (eta above 1).
  bool no_noise_from_zero = false;
  // dpm_fast and dpm_adaptive, which end at the smallest level above 0, give the noise back where
  // that is the first one; else they end with x = D.
  bool leaves_single_level = false;
  // Where uni_pc ends for a last level 0; none: it ends with x = D.
  std::optional<double> uni_pc_last = {};
  // uni_pc's corrector with vary_coeff slips (solver/exponential.h).
  bool uni_pc_slips = false;
  // sa_solver corrects before the last step too, and orders fall to 1 for that one; else they do so
  // a step earlier, on ways that end at 0.
  bool sa_solver_corrects_last = false;
  // sa_solver draws in every step, where it renews noise or not.
  bool draws_unused_sa = false;
  // Left points over which er_sde adds its integrals up; none: nearly exact ones.
  std::optional<int64_t> er_sde_points = {};
  // er_sde follows the stochastic equation at eta 0 too, without its noise; at any other eta it
  // adds all of it.
  bool er_sde_eta_switches = false;
  // Stands for flow's level 1 in er_sde, whose network is still asked at 1; 0:
  // SampleCall::first_sigma, at which it is asked.
  double er_sde_first = 0;
  // Samplers that remember slopes use them in the step to 0 too; else it ends with x = D.
  bool multistep_to_zero = false;
  // ipndm_v weights three and four slopes as if steps were equal.
  bool equal_weights_above_two = false;
  // ddim and plms, which are for sqrt(alpha_bar) x, end at the level of timestep 0 instead of at 0
  // (their last alpha_bar is the table's first), and leave that factor in.
  bool vp_ends_at_table = false;
  // tcd steps to whole timesteps, at the end to timestep 0; what comes out keeps that one's factor.
  bool vp_integer_timesteps = false;
  // lcm's D is that of a consistency function: near timestep 0 it becomes x.
  bool lcm_boundary = false;
  // dpmpp_2s_ancestral and euler_ancestral_cfg_pp draw at eta 0 too where they step as if alpha
  // were 1.
  bool draws_unused_ve = false;
  // dpmpp_2s_ancestral takes the first answer for that half way too where flow's lambda is
  // infinite; else it asks at 0.9999.
  bool flow_2s_evaluates_once = false;
  // On flow models stochastic samplers, euler_cfg_pp and euler_ancestral_cfg_pp reckon with lambda
  // and alpha of the flow; else as if alpha were 1.
  bool flow_sde = true;
  // Noise that is renewed as if alpha were 1 (s_churn, eta of dpm_fast and dpm_adaptive) is let
  // through on flow models; else refused.
  bool flow_churn = false;
  // dpmpp_2m reckons with flow's lambda on flow models; else with -ln(sigma).
  bool flow_lambda_2m = false;
  // Ancestral steps on flow models take an eta above 1 as 1.
  bool clamps_eta = false;
  // Equal parts in which lms adds its coefficients up (midpoint rule); none: exact integrals.
  std::optional<int64_t> lms_intervals = {};
  // Steps by which the slopes that lms remembers are newer than the ones whose weights they get.
  int64_t lms_newer = 0;
  // Schedules take what a flow network is told of its first and last level for their times, so that
  // these levels are shifted twice.
  bool shifts_flow_twice = false;
  // Networks with timesteps are told of whole ones, the nearest.
  bool integer_timesteps = false;
  // Schedules with a list of levels of their own give it where more were asked for.
  bool gives_fewer_levels = false;
  // Schedules that know what to do with a share of the way do it; else the end of a list for the
  // whole way is taken.
  bool schedules_know_shares = false;
  // Schedules reckon in f32 where in a table they are: a product may end one below, and what is
  // added up drifts.
  bool f32_schedules = false;
  // Samplers run on a list one level longer, whose last level above 0 is left out.
  std::vector<std::string> discard_penultimate = {};
  DialectDefaults defaults = {};
};

// ebb (our own rules: nothing is drawn in vain, corrected flow steps), kdiff (k-diffusion), comfy
// (ComfyUI), a1111 (Stable Diffusion web UI), diffusers, sdcpp (stable-diffusion.cpp).
const std::vector<Dialect>& all_dialects();
// Whatever the case of the name. Throws Error, suggests the nearest.
const Dialect& find_dialect(std::string_view name);

}  // namespace ebb
