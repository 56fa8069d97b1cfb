#include "diffusion/start/start_dialect.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/solver/dialect.h"
#include "diffusion/solver/sampler.h"

namespace ebb {
namespace {

// ---- strength ------------------------------------------------------------------------------

StartPlan last_of(int64_t steps, int64_t run) { return {steps, steps - run, run}; }

int64_t whole(double v) { return static_cast<int64_t>(v); }

StartPlan of_longer_list(int64_t steps, double strength) {
  const double length = static_cast<double>(steps) / strength;
  require(length < 1e6, "strength: ", strength, " is too little for ", steps, " steps (a list of ",
          length, ")");
  return last_of(whole(length), steps);
}

StartPlan nearest(int64_t steps, double strength, const StrengthOptions&) {
  return last_of(steps, std::llround(strength * static_cast<double>(steps)));
}

StartPlan by_list_length(int64_t steps, double strength, const StrengthOptions&) {
  if (strength > 0.9999) return last_of(steps, steps);
  if (strength <= 0) return last_of(steps, 0);
  return of_longer_list(steps, strength);
}

StartPlan one_more(int64_t steps, double strength, const StrengthOptions& o) {
  if (o.exact_steps && strength > 0) return of_longer_list(steps, std::min(strength, 0.999));
  return last_of(steps, whole(std::min(strength, 0.999) * static_cast<double>(steps)) + 1);
}

StartPlan partial_run(int64_t steps, double strength, const StrengthOptions& o) {
  const double n = static_cast<double>(steps), part = std::min(strength * n, n);
  return last_of(steps, o.space == Space::flow ? steps - whole(n - part) : whole(part));
}

StartPlan one_more_f32(int64_t steps, double strength, const StrengthOptions&) {
  const float part = static_cast<float>(steps) * static_cast<float>(strength);
  return last_of(steps, std::min(static_cast<int64_t>(part) + 1, steps));
}

// ---- the first noise -----------------------------------------------------------------------

bool from_largest(const FirstNoise& f) {
  return f.sigma > f.sigma_max || std::abs(f.sigma - f.sigma_max) <= 1e-5 * f.sigma_max;
}

bool is_one_of(std::string_view sampler, std::initializer_list<std::string_view> names) {
  if (sampler.empty()) return false;
  const std::string_view name = find_sampler(sampler).sampler->name;
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool of_timesteps(const FirstNoise& f) { return !f.has_data && is_of_timesteps(f.sampler); }

// Of diffusers' schedulers those whose state is x; that of the others is sqrt(alpha_bar) x.
bool is_of_sigma(std::string_view sampler) {
  return sampler.empty() || is_one_of(sampler, {"euler", "euler_ancestral", "heun", "dpm_2",
                                                "dpm_2_ancestral", "lms", "dpmpp_sde"});
}

bool of_vp_schedulers(const FirstNoise& f) {
  return !f.has_data && (!is_of_sigma(f.sampler) || f.leading);
}

// ---- inpainting ----------------------------------------------------------------------------

KnownRegions in_web_ui(std::string_view sampler) {
  const bool timesteps = is_of_timesteps(sampler);
  return {.input = timesteps, .output = !timesteps, .end = true, .clean_input = timesteps};
}
// Its ddim is euler, but for this.
KnownRegions in_comfy(std::string_view sampler) {
  return {.other_noise = is_one_of(sampler, {"ddim"})};
}
KnownRegions in_state(std::string_view) {
  return {.output = false, .end = true, .rounds_mask = true};
}
KnownRegions in_output(std::string_view) { return {.input = false}; }

// --------------------------------------------------------------------------------------------

constexpr StartDialect start_dialects[] = {
    {"ebb", nearest},
    {.name = "kdiff", .plan = one_more, .known = in_web_ui},
    {"comfy", by_list_length, from_largest, in_comfy},
    {"a1111", one_more, of_timesteps, in_web_ui},
    {"diffusers", partial_run, of_vp_schedulers, in_state},
    {.name = "sdcpp", .plan = one_more_f32, .known = in_output},
};

}  // namespace

bool is_of_timesteps(std::string_view sampler) {
  return is_one_of(sampler, {"ddim", "ddim_cfg_pp", "plms", "uni_pc"});
}

double result_scale(std::string_view dialect, std::string_view sampler, double last_sigma) {
  const std::string& name = find_dialect(dialect).name;
  const bool web_ui = name == "a1111" && is_of_timesteps(sampler);
  if (!web_ui && (name != "diffusers" || is_of_sigma(sampler))) return 1;
  return 1 / std::sqrt(1 + last_sigma * last_sigma);
}

const StartDialect& start_dialect(std::string_view name) {
  const std::string& known = find_dialect(name).name;
  for (const StartDialect& d : start_dialects)
    if (d.name == known) return d;
  fail("start: no rules for dialect '", name, "'");
}

}  // namespace ebb
