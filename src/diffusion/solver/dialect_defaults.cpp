#include "diffusion/solver/dialect_defaults.h"

#include <algorithm>

#include "diffusion/solver/diffusers_schedulers.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"

namespace ebb {

// ---- the table -----------------------------------------------------------------------------

DialectDefaults kdiff_defaults() {
  return {.schedule = "karras", .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"}};
}

// Its trees are on the CPU but for names that end in _gpu.
DialectDefaults comfy_defaults() {
  return {.schedule = "simple", .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"}};
}

DialectDefaults a1111_defaults() {
  return {.forms = {{"beta", "beta_continuous"},
                    {"kl_optimal", "", {{"to_zero", "false"}}},
                    {"align_your_steps", "", {{"keep_last", "true"}, {"rounded", "true"}}},
                    {"turbo", "", {{"spread", "true"}}}},
          .schedule = "uniform",  // its "automatic"
          .schedules = {{"dpmpp_2m", "karras"},
                        {"dpmpp_sde", "karras"},
                        {"dpmpp_2m_sde", "exponential"},
                        {"dpmpp_2s_ancestral", "karras"},
                        {"dpmpp_3m_sde", "exponential"},
                        {"dpm_2", "karras"},
                        {"dpm_2_ancestral", "karras"},
                        {"restart", "karras"},
                        {"ddim", "ddim_uniform"},
                        {"ddim_cfg_pp", "ddim_uniform"},
                        {"plms", "ddim_uniform"},
                        {"uni_pc", "time_uniform"}},
          .defaults = {{"dpm_fast", {{"eta", "1"}}}, {"dpm_adaptive", {{"eta", "1"}}}},
          .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"},
          .brownian_options = {{"per_image", "true"}, {"generator", "torch_cuda"}}};
}

// Its schedulers run with the scheduler_config of a model: leading, offset 1 is that of Stable
// Diffusion XL.
DialectDefaults diffusers_defaults() {
  return {
      .forms = {{"beta", "beta_continuous"},
                {"align_your_steps", "", {{"model", "sd1_timesteps"}}},
                {"turbo", "diffusers_timesteps", {{"spacing", "trailing"}}}},
      .schedule = "leading",
      .flow_schedule = "flow",
      .schedules = {{"lcm", "lcm"}, {"tcd", "lcm"}},
      .defaults = {{"uni_pc", {{"order", "2"}, {"variant", "bh2"}}},
                   {"sa_solver", find_diffusers_scheduler("SASolverScheduler")->options},
                   {"deis",
                    {{"deis_mode", "log_rho"}, {"max_order", "2"}, {"lower_order_final", "true"}}}},
      .brownian = {"dpm_solver_sde", "cosine_dpmpp_2m_sde"}};
}

DialectDefaults sdcpp_defaults() {
  return {.schedule = "discrete",
          .schedules = {{"lcm", "lcm"}, {"tcd", "lcm"}, {"ddim_trailing", "simple"}},
          .defaults = {{"tcd", {{"eta", "0"}}}},
          .brownian_options = {{"generator", "nv"}}};
}

// ---- queries -------------------------------------------------------------------------------

OptionTexts default_options(std::string_view dialect, std::string_view sampler) {
  OptionTexts out;
  for (const SamplerDefaults& d : find_dialect(dialect).defaults.defaults)
    if (means_sampler(d.sampler, sampler))
      out.insert(out.end(), d.options.begin(), d.options.end());
  return out;
}

DefaultNoise default_noise(std::string_view dialect, std::string_view sampler) {
  const Dialect& d = find_dialect(dialect);
  const std::string plain = split_schedule(plain_name(sampler)).sampler;
  const bool on_gpu = plain.ends_with("gpu"), asked = on_gpu || plain.ends_with("bt");
  const bool usual =
      std::any_of(d.defaults.brownian.begin(), d.defaults.brownian.end(),
                  [&](const std::string& name) { return means_sampler(name, sampler); });
  DefaultNoise out{.source = d.noise};
  if (!usual && !asked) return out;
  out.steps = "brownian";
  out.step_options = d.defaults.brownian_options;
  if (on_gpu) out.step_options.emplace_back("generator", "torch_cuda");
  return out;
}

}  // namespace ebb
