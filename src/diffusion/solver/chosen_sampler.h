// ChosenSampler: a sampler and its options, looked up and checked once for any number of runs.
#pragma once

#include <string_view>

#include "diffusion/solver/sampler.h"

namespace ebb {

// With all options of a call: the dialect's, its name's and the caller's.
struct ChosenSampler {
  const Sampler* sampler = nullptr;
  OptionTexts options = {};
};
// By any of its names. Throws Error for names and options that there are not, and for samplers that
// do not serve the call's space.
ChosenSampler choose_sampler(std::string_view name, const SampleCall& call);
// As those of sampler.h, which choose anew for each run.
Latent sample(const ChosenSampler& sampler, Latents& latents, Latent x, const SampleCall& call);
SampleCounts count(const ChosenSampler& sampler, const SampleCall& call);

}  // namespace ebb
