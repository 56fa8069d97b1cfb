// TrainConfig: all settings of a training run except the model and the diffusion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/seed.h"
#include "core/communicator.h"
#include "train/schedule.h"
#include "train/step.h"

namespace ebb::train {

struct TrainConfig {
  std::string data, model = "tiny", out = "run";
  int64_t steps = 0;
  double minutes = 0;
  int64_t batch = 64, accumulation = 1;
  DrawableSeed seed = 0;
  double lr = 1e-3;
  std::string schedule = "constant";
  int64_t warmup = 0;
  double lr_final = 0, lr_reference = 0;
  std::string optimizer = "adamw", optimizer_options;
  double beta1 = 0.9, beta2 = 0, eps = 1e-8, weight_decay = 0, clip = 1;
  double ema = 0, ema_halflife = 500000, ema_rampup = 0.05;
  std::string dtype = "auto", device = "auto", tune = "off", recompute = "off";
  int64_t threads = 0;
  std::string gpus, shard = "auto", reduce_dtype = "f32";
  int64_t size = 0, channels = 0;
  std::string classes = "auto";
  int64_t limit = 0, cache = 8192;
  bool flip = false;
  double augment = 0;
  std::string validation = "off";  // of runs of older versions; `ebb train` begins with auto
  int64_t validation_every = 0;
  int64_t checkpoint_every = 1000, keep = 3, sample_every = 0, log_every = 10;
  bool tensorboard = true, resume = false, overwrite = false;

  // Images of a micro-batch, over all ranks.
  int64_t micro_batch() const { return batch / accumulation; }
  void fields(auto&& f) {
    // ---- what and where
    f("data", data, "training images: a folder, an IDX file or folder, or a .safetensors file");
    f("model", model, "name of a model or preset");
    f("out", out, "folder of the run: checkpoints, samples, metrics");
    f("resume", resume, "continue the run in `out` from its last checkpoint");
    f("overwrite", overwrite, "start anew although `out` holds a run; what it wrote is deleted");
    // ---- how long
    f("steps", steps, "optimiser steps of the full run; 0: until `minutes` have passed");
    f("minutes", minutes, "stop after this many minutes, with a checkpoint; 0: no limit");
    // ---- optimiser
    f("batch", batch, "images per step");
    f("accumulation", accumulation, "micro-batches per step, to save memory");
    f("seed", seed, "of weights, order of images and noise, 0 to 2^64 - 1; -1: drawn and told");
    f("lr", lr, "learning rate");
    f("schedule", schedule, "of the learning rate: constant, cosine, linear or rsqrt");
    f("warmup", warmup, "steps in which the learning rate rises to lr");
    f("lr_final", lr_final, "cosine, linear: learning rate at the end, as a fraction of lr");
    f("lr_reference", lr_reference, "rsqrt: steps after which the learning rate falls");
    f("optimizer", optimizer, optimizer_help());
    f("optimizer_options", optimizer_options, "like d0=1e-5,d_coef=2 (docs/optimisers.md)");
    f("beta1", beta1, "decay of the first moment per step (" + readers_of("beta1") + ")");
    f("beta2", beta2, "decay of the second moment per step; 0: " + usual_beta2_help());
    f("eps", eps, "added to the root of the second moment (" + readers_of("eps") + ")");
    f("weight_decay", weight_decay, "decay of weight matrices per step, times lr");
    f("clip", clip, "largest global norm of the gradients; 0: no limit");
    f("ema", ema, "EMA decay of the weights per step; 0: by ema_halflife");
    f("ema_halflife", ema_halflife, "EMA half-life in images, where ema is 0; 0: no EMA");
    f("ema_rampup", ema_rampup, "largest EMA half-life as a fraction of the images seen; 0: any");
    // ---- machine
    f("dtype", dtype, "of matmuls and convolutions: f32, bf16, auto (bf16 if it is fast here)");
    f("recompute", recompute,
      "activation checkpoints: off, pointwise, all, auto (to fit) or a size to fit in, like 8GB");
    f("device", device, "auto, cpu or cuda");
    f("threads", threads, "CPU threads; 0: all that this process may use");
    f("gpus", gpus, "train on so many GPUs of this machine, or on all (docs/many-gpus.md)");
    f("shard", shard, "what several GPUs keep in parts: auto, none, optimizer, weights");
    f("reduce_dtype", reduce_dtype, "of gradients that GPUs send each other: f32 or bf16");
    f("tune", tune, "fast or full: measure kernel candidates once per shape; off: presets");
    // ---- data
    f("size", size, "side of the square images in pixels; 0: as in the files");
    f("channels", channels, "1 (grey), 3 (colour) or 0 (as in the files)");
    f("classes", classes, "of the images: auto (class folders, label files) or none");
    f("limit", limit, "use only this many images, spread evenly over the set; 0: all");
    f("cache", cache, "MiB of decoded images, or of latents and text states, kept in memory");
    f("flip", flip, "mirror images at random");
    f("augment", augment, "probability of each geometric augmentation (EDM); 0: off");
    f("validation", validation,
      "images that are not trained on, to measure the loss on: a number, a share like 5%, off or "
      "auto (5%, at most 256; none of less than 100 images; those of a test split, if there is "
      "one)");
    f("validation_every", validation_every, "steps between these measurements; 0: 1 % of the time");
    // ---- output
    f("checkpoint_every", checkpoint_every, "steps between checkpoints; 0: only at the end");
    f("keep", keep, "checkpoints kept, the newest; 0: all");
    f("sample_every", sample_every, "steps between sample grids; 0: none");
    f("log_every", log_every,
      "steps between progress lines, at most four a second, with the mean loss of the last steps");
    f("tensorboard", tensorboard, "write TensorBoard event files");
  }

  void choices(auto&& f) {
    f("schedule", schedule, rate_schedules());
    f("optimizer", optimizer, optimizer_names());
    f("dtype", dtype, {"auto", "f32", "bf16"});
    f("tune", tune, {"off", "fast", "full"});
    f("shard", shard, shard_choices());
    f("reduce_dtype", reduce_dtype, {"f32", "bf16"});
    f("classes", classes, {"auto", "none"});
  }
};

// Throws Error, naming the field and the numbers, for invalid values.
void check(const TrainConfig& c, int64_t ranks = 1);

// The learning rate that suits the optimiser with these options; `usual` if it has none of its own.
// Throws Error.
double usual_rate(const std::string& optimizer, const std::string& options, double usual);
OptimizerSettings optimizer_settings(const TrainConfig& c);
// Options of the optimiser that a run which goes on keeps, as "d0=1e-06"; "": none.
std::string fixed_options(const TrainConfig& c);
RateSchedule rate_schedule(const TrainConfig& c);
EmaSchedule ema_schedule(const TrainConfig& c);
// dtype auto: bf16 if `fast_bf16`.
StepOptions step_options(const TrainConfig& c, bool fast_bf16);

// How a run of a group is split; null: it is not. Throws Error for an optimiser whose states are
// not kept in parts.
Split split_of(const TrainConfig& c, const RankGroup* ranks);
// As parse_shard(), with `optimizer` in mind.
Shard shard_of(const std::string& shard, const Optimizer& optimizer, bool accumulates = false);

std::string to_json(const TrainConfig& c);
// The defaults with what the JSON object says. Throws Error naming `subject`; unknown names suggest
// the nearest.
TrainConfig train_config_from_json(std::string_view text, std::string_view subject);

}  // namespace ebb::train
