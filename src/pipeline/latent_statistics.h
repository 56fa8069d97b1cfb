// LatentStatistics: the mean and the deviation of each channel of an autoencoder's latents, by
// which a denoiser was trained to see them normalised, beside the factor of its LatentSpace.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace ebb {

struct LatentStatistics {
  std::vector<double> mean, deviation;  // by channel; empty: 0 and 1

  // (latent - mean) / deviation, and back.
  double normalised(double v, size_t i) const {
    return mean.empty() ? v : (v - mean[i % mean.size()]) / deviation[i % mean.size()];
  }
  double restored(double v, size_t i) const {
    return mean.empty() ? v : v * deviation[i % mean.size()] + mean[i % mean.size()];
  }
  double width(size_t i) const { return mean.empty() ? 1 : deviation[i % mean.size()]; }
};

// Playground 2.5 has them, which predicts as EDM does; none of the others.
LatentStatistics latent_statistics(const Model& denoiser, ModelConfig config);
// Says so of the denoiser of diffusers' folder, whose autoencoder has "latents_mean" and
// "latents_std" in its config.json. Throws Error for numbers that are not Playground's.
void take_latent_statistics(const Model& denoiser, ModelConfig& config,
                            const std::string& autoencoder);

}  // namespace ebb
