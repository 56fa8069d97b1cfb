#include "diffusion/solver/habits.h"

#include <algorithm>

#include "diffusion/solver/sampler.h"

namespace ebb {

// ---- the table -----------------------------------------------------------------------------

Habits kdiff_habits() {
  return {.schedule = "karras", .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"}};
}

// Its trees are on the CPU but for names that end in _gpu.
Habits comfy_habits() {
  return {.schedule = "simple", .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"}};
}

Habits a1111_habits() {
  return {.forms = {{"ddim", "ddim_uniform"},
                    {"beta", "beta_continuous"},
                    {"kl_optimal", "", {{"to_zero", "false"}}},
                    {"align_your_steps", "", {{"keep_last", "true"}, {"rounded", "true"}}},
                    {"turbo", "", {{"spread", "true"}}}},
          .schedule = "uniform",
          .schedules = {{"dpmpp_2m", "karras"},
                        {"dpmpp_sde", "karras"},
                        {"dpmpp_2m_sde", "exponential"},
                        {"dpmpp_2s_ancestral", "karras"},
                        {"dpmpp_3m_sde", "exponential"},
                        {"dpm_2", "karras"},
                        {"dpm_2_ancestral", "karras"},
                        {"lms", "karras"},
                        {"uni_pc", "time_uniform"}},
          .defaults = {{"uni_pc", {{"order", "3"}, {"variant", "bh1"}}}},
          .brownian = {"dpmpp_sde", "dpmpp_2m_sde", "dpmpp_3m_sde"},
          .brownian_options = {{"per_image", "true"}, {"generator", "torch_cuda"}}};
}

Habits diffusers_habits() {
  return {.forms = {{"beta", "beta_continuous"},
                    {"align_your_steps", "", {{"model", "sd1_timesteps"}}},
                    {"turbo", "diffusers_timesteps", {{"spacing", "trailing"}}}},
          .schedule = "leading",
          .flow_schedule = "flow",
          .schedules = {{"lcm", "lcm"}, {"tcd", "lcm"}},
          .defaults = {{"uni_pc", {{"order", "2"}, {"variant", "bh2"}}}},
          .brownian = {"dpm_solver_sde", "cosine_dpmpp_2m_sde"}};
}

Habits sdcpp_habits() {
  return {.schedule = "discrete",
          .schedules = {{"lcm", "lcm"}, {"tcd", "lcm"}, {"ddim_trailing", "simple"}},
          .defaults = {{"tcd", {{"eta", "0"}}}},
          .brownian_options = {{"generator", "nv"}}};
}

// ---- answers -------------------------------------------------------------------------------

namespace {

// Whether an entry of the table means a sampler: by the name that was asked for, or by the
// sampler's own.
bool means(std::string_view entry, std::string_view asked) {
  const std::string plain = plain_name(entry);
  return plain == plain_name(asked) || plain == plain_name(find_sampler(asked).sampler->name);
}

}  // namespace

OptionTexts default_options(std::string_view dialect, std::string_view sampler) {
  OptionTexts out;
  for (const SamplerDefaults& d : find_dialect(dialect).habits.defaults)
    if (means(d.sampler, sampler)) out.insert(out.end(), d.options.begin(), d.options.end());
  return out;
}

DefaultNoise default_noise(std::string_view dialect, std::string_view sampler) {
  const Dialect& d = find_dialect(dialect);
  const std::string plain = plain_name(sampler);
  const bool on_gpu = plain.ends_with("gpu"), asked = on_gpu || plain.ends_with("bt");
  const bool usual = std::any_of(d.habits.brownian.begin(), d.habits.brownian.end(),
                                 [&](const std::string& name) { return means(name, sampler); });
  DefaultNoise out{.source = d.noise};
  if (!usual && !asked) return out;
  out.steps = "brownian";
  out.step_options = d.habits.brownian_options;
  if (on_gpu) out.step_options.emplace_back("generator", "torch_cuda");
  return out;
}

}  // namespace ebb
