// The numbers of a denoiser's latents and those of its autoencoder: the one place that turns one
// into the other, and where folders say how.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "models/model.h"

namespace ebb {

// A denoiser's number of channel c is
// (autoencoder's number - shift - mean[c]) * scale / deviation[c].
struct LatentScaling {
  LatentSpace space;
  std::vector<double> mean = {}, deviation = {};  // none: 0 and 1

  LatentScaling(LatentSpace s)  // NOLINT: most spaces have no more than that
      : space(std::move(s)) {}
  LatentScaling(LatentSpace s, std::vector<double> means, std::vector<double> deviations)
      : space(std::move(s)), mean(std::move(means)), deviation(std::move(deviations)) {}
};

// Of a denoiser that works on latents.
LatentScaling latent_scaling(const Model& denoiser, const ModelConfig& config);
// How `autoencoder` reads and writes them: one that has the denoiser's numbers leaves nothing to
// scale.
LatentScaling read_by(const Component& autoencoder, const LatentScaling& denoiser);

// In place, f32 [...,C]: the denoiser's of the autoencoder's numbers, and back. Throw Error where
// the scaling is of other channels.
void to_denoiser(Tensor& latents, const LatentScaling& s);
void to_autoencoder(Tensor& latents, const LatentScaling& s);
// Of a standard deviation, to the denoiser's.
void scale_deviation(Tensor& deviation, const LatentScaling& s);

// Sets what vae/config.json of a folder of diffusers says of the denoiser's latents in its config:
// scaling_factor, shift_factor, and latents_mean with latents_std. Throws Error.
void read_latent_scaling(ModelConfig& denoiser, const std::string& vae_config);

}  // namespace ebb
