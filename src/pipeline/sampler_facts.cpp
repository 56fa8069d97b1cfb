#include "pipeline/sampler_facts.h"

#include <algorithm>
#include <cmath>

#include "diffusion/levels/schedule.h"

namespace ebb {

// ---- data ----------------------------------------------------------------------------------

Blobs line_of_blobs() {
  return {.dims = 1, .spread = 0.3, .weights = {0.35, 0.65}, .means = {-1.2, 0.8}};
}

Blobs plane_of_blobs() {
  return {.dims = 2,
          .spread = 0.16,
          .weights = {0.3, 0.3, 0.4},
          .means = {-1.0, -0.6, 0.95, -0.7, 0.05, 0.9}};
}

void Blobs::denoise(std::span<const double> x, double sigma, std::span<double> out) const {
  const auto d = static_cast<size_t>(dims);
  const double v = spread * spread + sigma * sigma;
  std::vector<double> shares(weights.size()), logs(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) shares[k] = std::log(weights[k]);
  for (size_t p = 0; p < x.size(); p += d) {
    for (size_t k = 0; k < weights.size(); ++k) {
      logs[k] = shares[k];
      for (size_t i = 0; i < d; ++i) {
        const double away = x[p + i] - means[k * d + i];
        logs[k] -= away * away / (2 * v);
      }
    }
    const double largest = *std::max_element(logs.begin(), logs.end());
    double sum = 0;
    for (double& l : logs) sum += l = std::exp(l - largest);
    for (size_t i = 0; i < d; ++i) {
      double mean = 0;
      for (size_t k = 0; k < weights.size(); ++k) mean += logs[k] / sum * means[k * d + i];
      out[p + i] = (spread * spread * x[p + i] + sigma * sigma * mean) / v;
    }
  }
}

void Blobs::denoise_flow(std::span<const double> x, double sigma, std::span<double> out) const {
  const double alpha = std::max(1 - sigma, 1e-9);
  std::vector<double> scaled(x.begin(), x.end());
  for (double& v : scaled) v /= alpha;
  denoise(scaled, sigma / alpha, out);
}

// ---- measurements --------------------------------------------------------------------------

SampleCall measured_call(int64_t steps, OptionTexts options) {
  const Discretisation levels = discretisation({});
  SampleCall call{.sigmas = noise_levels("karras", levels, {.steps = steps}),
                  .options = std::move(options)};
  call.table = levels.sigmas;
  return call;
}

SamplerCost cost_of(const Sampler& sampler) {
  const SampleCounts few = count(sampler.name, measured_call(12)),
                     more = count(sampler.name, measured_call(24));
  return {static_cast<double>(more.evaluations - few.evaluations) / 12,
          static_cast<double>(more.draws - few.draws) / 12};
}

}  // namespace ebb
