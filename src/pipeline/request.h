// Requests: what is asked of a trained model, and the same resolved: named, parsed and checked
// once, before a device is opened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/seed.h"
#include "diffusion/guidance/guide.h"
#include "diffusion/solver/chosen_sampler.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/start/strength.h"
#include "passes/contractions/circular_padding.h"
#include "pipeline/load_model.h"

namespace ebb {

struct GenerateOptions {
  int64_t steps = 18;
  std::string sampler = "heun", schedule = "auto", dtype = "auto";
  DrawableSeed seed = 0;
  double guidance = 1;
  int64_t batch = 0;
  std::string options, schedule_options, rules, dialect = "ebb", noise = "auto", noise_options;
  bool batch_invariant = false;
  bool steps_given = false;  // `steps` is not the default: an error where it has no meaning
  // Nothing said them: a checkpoint may have others (pipeline/open_choices.h).
  bool steps_open = false, guidance_open = false;
  void fields(auto&& f) {
    f("steps", steps, "noise levels above 0");
    f("sampler", sampler,
      "the sampler (ebb samplers lists them); a name may imply a schedule and options, "
      "as DPM++ 2M Karras does: --schedule and --options win over it");
    f("schedule", schedule,
      "of the noise levels; auto: from the sampler's name, or the dialect, or what the "
      "model was published with");
    f("seed", seed,
      "of the noise, 0 to 2^64 - 1; -1: one is drawn and told; image i is the same whatever the "
      "number of images");
    f("guidance", guidance,
      "classifier-free guidance scale; 1: off; networks of distilled guidance read it");
    f("batch", batch, "images at a time; 0: automatic");
    f("batch_invariant", batch_invariant,
      "each image has the same bits whatever their number: evaluated alone, at the speed of "
      "--batch 1");
    f("dtype", dtype,
      "of matmuls and convolutions: f32, bf16, f16 or auto (where the device is fast in it: f16 of "
      "a file in f16, else bf16)");
    f("options", options, "of the sampler, as name=value,name=value (ebb samplers NAME)");
    f("schedule_options", schedule_options,
      "of the schedule that is named, likewise; custom's levels: sigmas=14.6,5,1,0 or file=PATH");
    f("rules", rules,
      "guidance other than --guidance: rule:name=value,name=value;rule, such as "
      "interval:sigma_hi=5;cfg:scale=3");
    f("noise", noise,
      "source of random numbers (ebb samplers); auto: where the dialect's program draws "
      "them");
    f("noise_options", noise_options, "of the source of noise, as name=value,name=value");
    f("dialect", dialect,
      "whose conventions are followed: ebb, kdiff, comfy, a1111, diffusers, sdcpp");
  }
  void choices(auto&& f) { f("dtype", dtype, {"auto", "f32", "bf16", "f16"}); }
};

struct GenerateRequest {
  std::vector<int64_t> classes;  // one an image; -1: none
  int64_t first_image = 0;       // number of the first one, for its noise
  ImageSize size = {};           // of the images, pixels; {}: the model's own
  bool prompted = false;         // RunConditions are given to the run
  // The predictions that these are for.
  std::vector<Branch> branches = {Branch::cond, Branch::uncond};
  CircularAxes tiling = {};  // along which images can be laid side by side
  // Of a run that starts from an image: how much noise is added, 0 to 1; none: a run from noise.
  std::optional<double> strength = {};
  bool exact_steps = false;  // StrengthOptions::exact_steps
};

// Whose noise an image gets.
struct ImageKey {
  uint64_t seed = 0;
  int64_t image = 0;  // its number among those of the seed
};

// A request as it will run. Nothing in it is parsed, looked up or decided again.
struct ResolvedRequest {
  // What was asked for, with what runs in place of `auto` and 0. dtype stays auto until the device
  // is known; noise where start and steps have sources of their own, which no single name says.
  GenerateOptions options;
  std::vector<int64_t> classes;
  int64_t first_image = 0;
  // Of images of several requests in one batch, one each; none: options.seed, first_image and on.
  std::vector<ImageKey> keys = {};
  Shape sample;  // {H,W,C}, of what the denoiser makes: pixels or latents
  int64_t batch = 1;
  std::optional<DType> dtype = {};  // none: usual_dtype() of the device
  bool guided = false;              // the negative branch is evaluated
  // options.guidance of a network that is told it (distilled guidance), and needs no negative one.
  std::optional<double> distilled = {};
  CircularAxes tiling = {};
  ChosenSampler sampler;
  SampleCall call = {};  // levels and further arguments of the sampler
  SampleCounts counts = {};
  StartOptions start = {};
  double result_scale = 1;  // of the state that the run ends in (result_scale())
  DefaultNoise noise = {};
  std::vector<double> noise_levels = {};  // that the sources know; none: those of `call`
  OptionTexts noise_options = {};
  std::vector<RuleCall> rules = {};        // of guidance; with none options.guidance is its scale
  int64_t timesteps_apart = 0;             // DenoiserOptions::timesteps_apart
  std::vector<std::string> warnings = {};  // what a user should know: a line each

  int64_t count() const { return static_cast<int64_t>(classes.size()); }
  bool draws_in_plan() const;  // new noise is drawn by the compiled denoiser
};
// Whether the network reads the scale of guidance (distilled guidance).
bool is_told_guidance(const LoadedModel& model);
// Throws Error for what cannot be asked of the model, what does not go together, and what has no
// effect.
ResolvedRequest resolve(const LoadedModel& model, const GenerateRequest& request,
                        const GenerateOptions& options);
// The same run on a part of its levels.
ResolvedRequest on_levels(ResolvedRequest r, std::vector<double> sigmas);

}  // namespace ebb
