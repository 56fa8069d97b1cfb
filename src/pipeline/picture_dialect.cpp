#include "pipeline/picture_dialect.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/solver/dialect.h"
#include "diffusion/solver/sampler_names.h"

namespace ebb {
namespace {

constexpr std::string_view a1111_of_second_order[] = {
    "heun", "dpm_2", "dpm_2_ancestral", "dpmpp_2s_ancestral", "dpmpp_sde", "restart"};

constexpr float comfy_grey_latents[] = {0.8223f, -0.6876f, 0.6364f, 0.1380f};

constexpr PictureDialect table[] = {
    {.name = "ebb", .family_schedule = true},
    {.name = "kdiff",
     .exact_steps = true,
     .restores_always = true,
     .refiner = RefinerStart::by_level},
    {.name = "comfy",
     .syntax = text::PromptSyntax::comfyui,
     .empty_negative = EmptyNegative::encoded,
     .cuts_bytes = true,
     .mask = LatentMaskRule::bilinear,
     .restores_always = true,
     .mask_beside = LatentMaskRule::rounded_bilinear,
     .grey_latents = comfy_grey_latents,
     .mask_blur = 0,
     .control_shares = ControlShares::of_noise_levels},
    {.name = "a1111",
     .prompts_count_evaluations = true,
     .of_second_order = a1111_of_second_order,
     .prompts_count_on = true,
     .fills_parts = true,
     .skips_all = false,
     .ddim_cfg_pp_unit = 1 / 12.5,  // so that its usual guidance becomes 0 to 1
     .cuts_bytes = true,
     .exact_steps = true,
     .restores_always = true,
     .control_shares = ControlShares::begun_steps,
     .refiner = RefinerStart::by_level,
     .hands_over = true},
    {.name = "diffusers",
     .syntax = text::PromptSyntax::diffusers,
     .folder_says_empty = true,
     .scheduler_of_folder = true,
     .samples_posterior = true,
     .mask = LatentMaskRule::nearest,
     .mask_blur = 0,
     .refiner = RefinerStart::by_timesteps},
    {.name = "sdcpp", .empty_negative = EmptyNegative::zero_states},
};

}  // namespace

const PictureDialect& picture_dialect(std::string_view name) {
  const std::string& known = find_dialect(name).name;
  for (const PictureDialect& d : table)
    if (d.name == known) return d;
  fail("pictures: no rules for dialect '", name, "'");
}

int64_t evaluations_of_step(const PictureDialect& dialect, std::string_view sampler) {
  const bool second = std::ranges::any_of(
      dialect.of_second_order, [&](std::string_view name) { return means_sampler(name, sampler); });
  return second ? 2 : 1;
}

}  // namespace ebb
