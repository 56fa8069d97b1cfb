// Errors of samplers on data whose optimal denoiser has a closed form.
#pragma once

#include <functional>
#include <string>

namespace ebb {

// Mean distance between samples and data in one dimension, both sorted (Wasserstein 1), by
// evaluations of the denoiser, on the karras levels of Stable Diffusion. Markdown tables: without
// new noise, with it, and of samplers that choose their own steps. The same text in every run.
// `progress` gets the share that is done, 0 to 1.
std::string sampler_error_tables(const std::function<void(double)>& progress = {});

}  // namespace ebb
