// Generator: images from a trained model: its network, weights, denoiser and sampler.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/seed.h"
#include "diffusion/config.h"
#include "diffusion/denoiser.h"
#include "diffusion/solver/run.h"
#include "models/model.h"
#include "runtime/plan.h"

namespace ebb {

struct GenerateOptions {
  int64_t steps = 18;
  std::string sampler = "heun", schedule = "auto", dtype = "auto";
  Seed seed = 0;
  double guidance = 1;
  int64_t batch = 0;
  std::string options, schedule_options, rules, dialect = "ebb", noise = "auto", noise_options;
  void fields(auto&& f) {
    f("steps", steps, "noise levels above 0");
    f("sampler", sampler,
      "the sampler (ebb samplers lists them); a name may imply a schedule and options, "
      "as DPM++ 2M Karras does: --schedule and --options win over it");
    f("schedule", schedule,
      "of the noise levels; auto: from the sampler's name, or the dialect, or what the "
      "model was published with");
    f("seed", seed,
      "of the noise, 0 to 2^64 - 1; image i is the same whatever the number of images");
    f("guidance", guidance, "classifier-free guidance scale; 1: off");
    f("batch", batch, "images at a time; 0: automatic");
    f("dtype", dtype,
      "of matmuls and convolutions: f32, bf16 or auto (bf16 if fast on the device)");
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
  void choices(auto&& f) { f("dtype", dtype, {"auto", "f32", "bf16"}); }
};

struct GenerateRequest {
  std::vector<int64_t> classes;  // one an image; -1: none
  int64_t first_image = 0;       // number of the first one, for its noise
};

struct Generated {
  Tensor images;            // f32 [N,H,W,C] in [-1,1]
  int64_t evaluations = 0;  // of the denoiser, an image
  int64_t steps = 0;        // made: fewer than asked for where levels coincide
  // What was asked for, with what ran instead of `auto` and 0. Noise stays auto where start and
  // steps have sources of their own, which no single name says.
  GenerateOptions ran;
  std::string start_noise, step_noise;  // the sources
};

// The network and its parts that a checkpoint means.
struct LoadedModel {
  const Model* model = nullptr;
  ModelConfig config;
  DiffusionConfig diffusion;
  std::vector<std::string> class_names;
  NamedTensors weights;
  int64_t step = 0;     // of training; 0 if the file does not say
  bool of_run = false;  // `diffusion` is what it was trained with
  // What neither the file nor a preset says of the config, as text; "" if they say all.
  std::string guessed = {};
};
// A file, or the folder of a run. `model` names the model of a file that cannot be recognised;
// `overrides` are fields of DiffusionConfig, by name and text. Throws Error, also for fields that
// do not apply to the model and for weights that are not finite.
LoadedModel load_model(const std::string& path, const std::string& model = "",
                       const std::vector<std::pair<std::string, std::string>>& overrides = {});

// What models of the family are trained as, if nothing else is said.
DiffusionConfig usual_diffusion(const Model& model, const ModelConfig& config);

// Throws Error for what cannot be asked of the model; generate() does so too.
void check(const LoadedModel& model, const GenerateRequest& request,
           const GenerateOptions& options);

// What a user should know of such a request: guidance that cannot do what it should. A line each.
std::vector<std::string> warnings(const LoadedModel& model, const GenerateRequest& request,
                                  const GenerateOptions& options);

// `progress` gets the share that is done, 0 to 1, at the start, after every step and on the host
// within one; returning false stops with Cancelled. Throws Error before anything is made where
// memory is short.
Generated generate(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& options, const Context& context,
                   const std::function<bool(double)>& progress = {});

// u8 [N,H,W,C] from f32 in [-1,1], rounded.
Tensor to_pixels(const Tensor& images);
// One image of a batch, [H,W,C].
Tensor image_at(const Tensor& images, int64_t index);

}  // namespace ebb
