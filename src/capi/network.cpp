// The C API's view of a network: its inputs, and D from its output.
#include <cmath>

#include "capi/handle.h"
#include "diffusion/levels/prediction.h"

namespace {

ebb::PrecondFactors<double> factors_at(const ebb_sampler& s, double sigma) {
  const auto known = ebb::capi::resolved(s);
  ebb::capi::require_level("sampler", sigma, known->call.space);
  return ebb::precond_factors(known->network.prediction, sigma, known->network.sigma_data);
}

}  // namespace

ebb_status ebb_network_input(const ebb_sampler* sampler, double sigma, double* scale,
                             double* timestep) {
  return ebb::capi::guarded([&] {
    ebb::capi::require_given(sampler, "sampler");
    const double in = factors_at(*sampler, sigma).in;
    if (scale) *scale = in;
    if (!timestep) return;
    const auto known = ebb::capi::resolved(*sampler);
    const ebb::Discretisation& levels = known->network.levels;
    const double t = levels.c_noise_of(sigma, known->timesteps_apart);
    ebb::require(std::isfinite(t), "sampler: a network of levels ", levels.name,
                 " has no finite timestep at sigma ", sigma);
    *timestep = t;
  });
}

ebb_status ebb_network_denoised(const ebb_sampler* sampler, double sigma, const float* x,
                                const float* output, size_t count, float* denoised) {
  return ebb::capi::guarded([&] {
    ebb::capi::require_given(sampler, "sampler");
    ebb::capi::require_given(x, "x");
    ebb::capi::require_given(output, "output");
    ebb::capi::require_given(denoised, "denoised");
    const auto f = factors_at(*sampler, sigma);
    for (size_t i = 0; i < count; ++i)
      denoised[i] = static_cast<float>(f.skip * static_cast<double>(x[i]) +
                                       f.out * static_cast<double>(output[i]));
  });
}
