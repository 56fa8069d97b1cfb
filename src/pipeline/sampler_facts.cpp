#include "pipeline/sampler_facts.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/host_latents.h"

namespace ebb {
namespace {

constexpr int64_t starts = 2000;

// Where data + sigma noise have this share below it (bisection).
double quantile(const Blobs& data, double share, double sigma) {
  const double spread = std::hypot(data.spread, sigma), reach = 10 * (1 + sigma);
  double low = -reach, high = reach;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    double below = 0;
    for (size_t k = 0; k < data.weights.size(); ++k)
      below +=
          data.weights[k] * 0.5 * std::erfc(-(middle - data.means[k]) / spread / std::sqrt(2.0));
    (below < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The middles of equal shares.
double share_of(int64_t i) { return (static_cast<double>(i) + 0.5) / static_cast<double>(starts); }

bool has_option(const Sampler& s, std::string_view name) {
  const std::vector<Option> all = s.options();
  return std::any_of(all.begin(), all.end(), [&](const Option& o) { return o.name == name; });
}

SampleCall call_of(int64_t steps) {
  const Discretisation levels = discretisation({});
  SampleCall call{.sigmas = noise_levels("karras", levels, {.steps = steps})};
  call.table = levels.sigmas;
  return call;
}

}  // namespace

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
  std::vector<double> logs(weights.size());
  for (size_t p = 0; p < x.size(); p += d) {
    for (size_t k = 0; k < weights.size(); ++k) {
      logs[k] = std::log(weights[k]);
      for (size_t i = 0; i < d; ++i) logs[k] -= std::pow(x[p + i] - means[k * d + i], 2) / (2 * v);
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

SamplerCost cost_of(const Sampler& sampler) {
  const SampleCounts few = count(sampler.name, call_of(12)),
                     more = count(sampler.name, call_of(24));
  return {static_cast<double>(more.evaluations - few.evaluations) / 12,
          static_cast<double>(more.draws - few.draws) / 12};
}

double sampling_error(const Sampler& sampler, int64_t evaluations) {
  const Blobs data = line_of_blobs();
  const double each = std::max(cost_of(sampler).evaluations, 0.5);
  const auto steps = std::max<int64_t>(std::llround(static_cast<double>(evaluations) / each), 2);
  SampleCall call = call_of(steps);
  if (has_option(sampler, "eta")) call.options.emplace_back("eta", "0");
  HostLatents<double> latents(
      static_cast<size_t>(starts),
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double> u) {
        data.denoise(x, sigma, d);
        std::copy(d.begin(), d.begin() + static_cast<int64_t>(u.size()), u.begin());
      },
      keyed_noise({.seed = 3, .images = {0}, .elements = starts}));
  std::vector<double> x;
  for (int64_t i = 0; i < starts; ++i) x.push_back(quantile(data, share_of(i), call.sigmas[0]));
  try {
    x = latents.values(sample(sampler.name, latents, latents.put(x), call));
  } catch (const Error&) {
    return -1;
  }
  std::sort(x.begin(), x.end());
  double sum = 0;
  for (int64_t i = 0; i < starts; ++i)
    sum += std::abs(x[static_cast<size_t>(i)] - quantile(data, share_of(i), 0));
  return sum / static_cast<double>(starts);
}

}  // namespace ebb
