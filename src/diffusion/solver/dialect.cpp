#include "diffusion/solver/dialect.h"

#include "base/error.h"
#include "base/names.h"
#include "diffusion/noise/noise.h"

namespace ebb {

namespace {

Dialect comfy() {
  return {.name = "comfy",
          .help = "ComfyUI",
          .noise = "comfy",
          .draws_unused_heunpp2 = true,
          .draws_unused_eta = true,
          .flow_res_ancestral = false,
          .draws_unused_substeps = true,
          .renews_all_from_1 = true,
          .late_uncond_2s = true,
          .no_noise_from_zero = true,
          .leaves_single_level = true,
          .uni_pc_last = 0.001,
          .er_sde_points = 200,
          .flow_churn = true,
          .shifts_flow_twice = true,
          .integer_timesteps = true,
          .gives_fewer_levels = true,
          .schedules_know_shares = true,
          .discard_penultimate = {"dpm_2", "dpm_2_ancestral", "uni_pc", "uni_pc_bh2"},
          .defaults = comfy_defaults()};
}

Dialect sdcpp() {
  return {.name = "sdcpp",
          .help = "stable-diffusion.cpp",
          .noise = "nv",
          .er_sde_points = 200,
          .er_sde_eta_switches = true,
          .er_sde_first = 1 - 1e-4,
          .multistep_to_zero = true,
          .equal_weights_above_two = true,
          .vp_integer_timesteps = true,
          .draws_unused_ve = true,
          .flow_2s_evaluates_once = true,
          .flow_sde = false,
          .clamps_eta = true,
          .lms_intervals = 1000,
          .lms_newer = 1,
          .f32_schedules = true,
          .defaults = sdcpp_defaults()};
}

Dialect diffusers() {
  return {.name = "diffusers",
          .help = "Hugging Face diffusers",
          .noise = "torch_cpu",
          .least_step = 0,
          .draws_unused_last = true,
          .sa_solver_corrects_last = true,
          .draws_unused_sa = true,
          .multistep_to_zero = true,
          .vp_ends_at_table = true,
          .vp_integer_timesteps = true,
          .lcm_boundary = true,
          .flow_lambda_2m = true,
          .shifts_flow_twice = true,
          .defaults = diffusers_defaults()};
}

}  // namespace

const std::vector<Dialect>& all_dialects() {
  static const std::vector<Dialect> table = {
      {.name = "ebb",
       .help = "nothing is drawn in vain; corrected steps on flow models",
       .schedules_know_shares = true,
       .defaults = {.brownian_options = {{"per_image", "true"}}}},
      {.name = "kdiff",
       .help = "k-diffusion",
       .noise = "torch_cpu",
       .draws_unused_churn = true,
       .draws_unused_eta = true,
       .draws_unused_sde = true,
       .flow_ancestral = false,
       .no_noise_from_zero = true,
       .leaves_single_level = true,
       .multistep_to_zero = true,
       .flow_sde = false,
       .flow_churn = true,
       .defaults = kdiff_defaults()},
      comfy(),
      {.name = "a1111",
       .help = "Stable Diffusion web UI, and Forge",
       .noise = "a1111",
       .draws_unused_churn = true,
       .draws_unused_heunpp2 = true,
       .draws_unused_eta = true,
       .draws_unused_sde = true,
       .flow_ancestral = false,
       .no_noise_from_zero = true,
       .leaves_single_level = true,
       .uni_pc_slips = true,
       .multistep_to_zero = true,
       .lcm_boundary = true,
       .lcm_timesteps_apart = 20,
       .flow_sde = false,
       .flow_churn = true,
       .discard_penultimate = {"dpm_2", "dpm_2_ancestral", "dpmpp_3m_sde"},
       .defaults = a1111_defaults()},
      diffusers(),
      sdcpp(),
  };
  return table;
}

const Dialect& find_dialect(std::string_view name) {
  std::vector<std::string> known;
  for (const Dialect& d : all_dialects()) {
    if (same_name(d.name, name)) return d;
    known.push_back(d.name);
  }
  for (const NoiseSource* s : all_noise_sources())
    require(!same_name(s->name, name), "dialect: '", name, "' is a source of noise",
            suggestion({}, known));
  fail_unknown("dialect: unknown name", name, known);
}

}  // namespace ebb
