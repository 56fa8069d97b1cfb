// PictureDialect: what well-known programs do differently around a sampler, with prompts, pictures,
// masks, control networks and further passes, as data: a row a program. What samplers and schedules
// do is in diffusion/solver/dialect.h, the starts of runs in diffusion/start/start_dialect.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "pipeline/mask_image.h"
#include "text/prompt.h"

namespace ebb {

// Where a program lets a refiner take over.
enum class RefinerStart : uint8_t {
  by_steps,      // by the number of steps
  by_level,      // by the share of noise that is removed
  by_timesteps,  // at a timestep, diffusers' denoising_end
};

// Which steps a control network takes part in, of shares `start` and `end` of the run.
enum class ControlShares : uint8_t {
  whole_steps,      // those that lie between them
  begun_steps,      // those that begin between them, by the number of the evaluation before
  of_noise_levels,  // those at levels between the ones of these shares of the timesteps
};

// What the branch of an empty negative prompt reads. Some families were trained with texts that
// were replaced by zeros.
enum class EmptyNegative : uint8_t {
  encoded,      // the encoding of ""
  zeros,        // states and pooled text are 0
  zero_states,  // states alone
};

struct PictureDialect {
  std::string_view name;
  // ---- prompts
  text::PromptSyntax syntax = text::PromptSyntax::a1111;
  // Steps of an edited prompt are evaluations of the denoiser, the first of them number 0. A run is
  // taken to have one a step, or two by these samplers.
  bool prompts_count_evaluations = false;
  std::span<const std::string_view> of_second_order = {};
  bool prompts_count_on = false;  // in the second pass of --hires
  bool fills_parts = false;       // of AND: copies of the last vector up to the longest part
  bool skips_all = true;          // --clip-skip, also of encoders that are FamilyText::fixed
  EmptyNegative empty_negative = EmptyNegative::zeros;  // of families that were trained so
  bool folder_says_empty = false;  // instead: model_index.json, or the family's published one
  // ---- guidance, schedules
  double ddim_cfg_pp_unit = 1;       // multiplies the guidance of ddim_cfg_pp
  bool family_schedule = false;      // Family::own_schedule
  bool scheduler_of_folder = false;  // scheduler_config.json
  // ---- pictures
  bool cuts_bytes = false;         // fractions are cut off, not rounded
  bool samples_posterior = false;  // of the autoencoder, by noise of one stream
  bool exact_steps = false;        // its option to run all steps at any strength; --hires does
  // ---- masks
  LatentMaskRule mask = LatentMaskRule::rounded_bicubic;
  bool restores_always = false;  // also for networks that were trained to inpaint
  // What those take beside the latents: the mask, and where all is generated the latents of a grey
  // picture: these, one a channel, or if there are none what the autoencoder makes of it.
  LatentMaskRule mask_beside = LatentMaskRule::nearest;
  std::span<const float> grey_latents = {};
  int64_t mask_blur = 4;  // pixels
  // ---- other networks
  ControlShares control_shares = ControlShares::whole_steps;
  RefinerStart refiner = RefinerStart::by_steps;
  bool hands_over = false;  // the refiner takes over within a run; else it makes one of its own
};

// Throws Error, suggests the nearest.
const PictureDialect& picture_dialect(std::string_view name);

int64_t evaluations_of_step(const PictureDialect& dialect, std::string_view sampler);

}  // namespace ebb
