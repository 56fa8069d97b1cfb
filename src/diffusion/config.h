// DiffusionConfig: what the network predicts, how it is trained and which noise levels it knows.
#pragma once

#include <cstdint>
#include <string>

namespace ebb {

struct DiffusionConfig {
  std::string precond = "edm";
  double sigma_data = 0.5;
  double noise_scale = 0.25;
  double P_mean = -1.2, P_std = 1.2;
  std::string betas = "linear";
  int64_t timesteps = 1000;
  bool learn_sigma = false;
  double vb_weight = 1e-3;
  std::string weighting = "plain";
  double min_snr_gamma = 5;
  double label_dropout = 0;
  double sigma_min = 0, sigma_max = 0;

  void fields(auto&& f) {
    f("precond", precond, "what the network predicts: edm, vp, ve, iddpm, eps or v");
    f("sigma_data", sigma_data, "edm: standard deviation of the data");
    f("noise_scale", noise_scale, "edm: the network reads noise_scale * ln(sigma)");
    f("P_mean", P_mean, "edm: mean of ln(sigma) in training");
    f("P_std", P_std, "edm: standard deviation of ln(sigma) in training");
    f("betas", betas, "eps, v: linear, cosine or scaled_linear (iddpm is always cosine)");
    f("timesteps", timesteps, "eps, v, iddpm: number of noise levels");
    f("learn_sigma", learn_sigma, "eps, v, iddpm: a second half of channels learns the variance");
    f("vb_weight", vb_weight, "learn_sigma: weight of the variational bound over all timesteps");
    f("weighting", weighting, "of the loss: plain (of the network's output) or min_snr");
    f("min_snr_gamma", min_snr_gamma, "min_snr: largest signal-to-noise ratio that counts");
    f("label_dropout", label_dropout, "probability that training sees no class (for guidance)");
    f("sigma_min", sigma_min, "smallest noise level of sampling; 0: the schedule's own");
    f("sigma_max", sigma_max, "largest noise level of sampling; 0: the schedule's own");
  }

  // Noise levels are those of a table, one a timestep.
  bool discrete() const { return precond == "eps" || precond == "v" || precond == "iddpm"; }
  bool operator==(const DiffusionConfig&) const = default;
};

// Throws Error for values out of range and unknown names (suggests the nearest).
void check(const DiffusionConfig& config);

}  // namespace ebb
