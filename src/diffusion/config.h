// DiffusionConfig: the prediction target, the training objective and the noise levels of a network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "diffusion/levels/beta_table.h"

namespace ebb {

struct DiffusionConfig {
  std::string precond = "edm";
  double sigma_data = 0.5;
  double noise_scale = 0.25;
  double P_mean = -1.2, P_std = 1.2;
  std::string betas = "linear";
  std::string zero_snr = "no";
  int64_t timesteps = 1000;
  bool learn_sigma = false;
  double vb_weight = 1e-3;
  std::string weighting = "plain";
  double min_snr_gamma = 5;
  double noise_offset = 0;
  std::string times = "logit_normal";
  double t_mean = 0, t_std = 1, shift = 1, time_scale = 1000;
  double label_dropout = 0;
  double sigma_min = 0, sigma_max = 0;

  void fields(auto&& f) {
    f("precond", precond, "what the network predicts: edm, vp, ve, iddpm, eps, v, x0 or flow");
    f("sigma_data", sigma_data, "edm: standard deviation of the data");
    f("noise_scale", noise_scale, "edm: c_noise is noise_scale * ln(sigma)");
    f("P_mean", P_mean, "edm: mean of ln(sigma) in training");
    f("P_std", P_std, "edm: standard deviation of ln(sigma) in training");
    f("betas", betas,
      "eps, v, x0: linear, scaled_linear, cosine (as iddpm), sigmoid, sqrt_linear or sqrt");
    f("zero_snr", zero_snr,
      "eps, v, x0: no signal at the last timestep: no, comfy or diffusers (how near to 0)");
    f("timesteps", timesteps, "eps, v, x0, iddpm, flow: number of noise levels");
    f("learn_sigma", learn_sigma,
      "eps, v, x0, iddpm: a second half of channels learns the variance");
    f("vb_weight", vb_weight, "learn_sigma: weight of the variational bound over all timesteps");
    f("weighting", weighting, "of the loss: plain (of the network's output) or min_snr");
    f("noise_offset", noise_offset,
      "training adds so much noise that is the same for all pixels of a channel");
    f("min_snr_gamma", min_snr_gamma, "min_snr: upper bound of the signal-to-noise ratio");
    f("times", times, "flow: how training draws times: logit_normal or uniform");
    f("t_mean", t_mean, "flow, logit_normal: mean of ln(t / (1 - t))");
    f("t_std", t_std, "flow, logit_normal: standard deviation of ln(t / (1 - t))");
    f("shift", shift, "flow: noise level of a time, shift t / (1 + (shift - 1) t)");
    f("time_scale", time_scale, "flow: c_noise is time_scale * noise level");
    f("label_dropout", label_dropout, "probability that training sees no class (for guidance)");
    f("sigma_min", sigma_min, "smallest noise level of sampling; 0: the schedule's own");
    f("sigma_max", sigma_max, "largest noise level of sampling; 0: the schedule's own");
  }

  void choices(auto&& f) {
    f("precond", precond, {"edm", "vp", "ve", "iddpm", "eps", "v", "x0", "flow"});
    f("betas", betas, beta_names());
    f("zero_snr", zero_snr, zero_snr_names());
    f("weighting", weighting, {"plain", "min_snr"});
    f("times", times, {"logit_normal", "uniform"});
  }

  // Noise levels are those of a table, one per timestep.
  bool discrete() const {
    return precond == "eps" || precond == "v" || precond == "x0" || precond == "iddpm";
  }
  bool operator==(const DiffusionConfig&) const = default;
};

// Throws Error for values out of range and unknown names (suggests the nearest); resolve() (base/
// choices.h) takes names in any case.
void check(const DiffusionConfig& config);

// Whether sampling ignores the field.
bool only_training(std::string_view field);
// Throws Error for fields that do not apply to networks with this precond.
void check_applies(std::string_view field, std::string_view precond);

}  // namespace ebb
