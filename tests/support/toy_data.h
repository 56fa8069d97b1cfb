// Data whose best denoiser is known exactly, value by value, and runs of samplers on it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <vector>

#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler.h"

namespace ebb::testing {

// ---- a mixture of two normal distributions -------------------------------------------------

struct Mixture {
  double weight[2] = {0.35, 0.65}, mean[2] = {-1.2, 0.8}, spread[2] = {0.25, 0.4};

  // D(x, sigma) for x = data + sigma noise.
  double denoise(double x, double sigma) const {
    double logs[2], means[2];
    for (int k = 0; k < 2; ++k) {
      const double v = spread[k] * spread[k] + sigma * sigma;
      logs[k] = std::log(weight[k]) - 0.5 * std::log(v) - 0.5 * std::pow(x - mean[k], 2) / v;
      means[k] = (spread[k] * spread[k] * x + sigma * sigma * mean[k]) / v;
    }
    const double p = 1 / (1 + std::exp(logs[1] - logs[0]));
    return p * means[0] + (1 - p) * means[1];
  }

  // Share of data + sigma noise below x (sign 1) or above it (sign -1).
  double tail(double x, double sigma, double sign) const {
    double p = 0;
    for (int k = 0; k < 2; ++k)
      p += weight[k] * 0.5 *
           std::erfc(-sign * (x - mean[k]) / std::hypot(spread[k], sigma) / std::numbers::sqrt2);
    return p;
  }

  // Where the exact probability flow takes x: it keeps quantiles.
  double transport(double x, double from, double to) const {
    const double sign = tail(x, from, 1) > 0.5 ? -1 : 1;  // the smaller tail has more digits
    const double p = tail(x, from, sign);
    double low = -1e3, high = 1e3;
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      ((tail(middle, to, sign) < p) == (sign > 0) ? low : high) = middle;
    }
    return (low + high) / 2;
  }
};

// ---- denoisers -----------------------------------------------------------------------------

using ToyDenoiser = std::function<double(double x, double sigma)>;

inline ToyDenoiser mixture_denoiser() {
  return [](double x, double sigma) { return Mixture{}.denoise(x, sigma); };
}

// Normal data: every sampler is affine in the state and the draws.
inline ToyDenoiser normal_denoiser(double mean, double deviation) {
  return [mean, s2 = deviation * deviation](double x, double sigma) {
    return (s2 * x + sigma * sigma * mean) / (s2 + sigma * sigma);
  };
}

// The same data on a flow model: x = (1 - sigma) data + sigma noise.
inline ToyDenoiser on_flow(ToyDenoiser d) {
  return [d = std::move(d)](double x, double sigma) {
    if (sigma >= 1) return d(x * 1e12, 1e12);  // of noise alone
    return d(x / (1 - sigma), sigma / (1 - sigma));
  };
}

// ---- levels and numbers --------------------------------------------------------------------

// Karras et al. 2022, equation 5, rho 7; `steps` levels, then 0 unless `end` is false.
inline std::vector<double> karras(int64_t steps, double low, double high, bool end = true) {
  std::vector<double> out;
  const double a = std::pow(high, 1 / 7.0), b = std::pow(low, 1 / 7.0);
  for (int64_t i = 0; i < steps; ++i) {
    const double u = steps == 1 ? 0 : static_cast<double>(i) / static_cast<double>(steps - 1);
    out.push_back(std::pow(a + u * (b - a), 7));
  }
  if (end) out.push_back(0);
  return out;
}
constexpr double sd_sigma_min = 0.0291671582, sd_sigma_max = 14.6146412293;
inline const std::vector<double> sd_levels = karras(6, sd_sigma_min, sd_sigma_max);

// sqrt(2) sin(12.9898 k) for the k-th draw (from 1), the same for every value.
inline NoiseFill sine_noise() {
  return [](std::span<double> out, const NoiseDraw& draw) {
    const double z = std::numbers::sqrt2 * std::sin(12.9898 * static_cast<double>(draw.index + 1));
    std::fill(out.begin(), out.end(), z);
  };
}

// ---- runs ----------------------------------------------------------------------------------

struct ToyRun {
  std::vector<double> x;
  int64_t evaluations = 0, draws = 0;
  std::vector<double> asked;  // levels of the evaluations
};

struct ToyModel {
  ToyDenoiser denoise = mixture_denoiser();
  ToyDenoiser uncond = normal_denoiser(0.5, 0.8);
  NoiseFill noise = sine_noise();
};

// From `x`, which is at the first level.
inline ToyRun run_toy(std::string_view sampler, const std::vector<double>& x,
                      const SampleCall& call, const ToyModel& model = {}) {
  ToyRun out;
  HostLatents<double> latents(
      x.size(),
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double> u) {
        ++out.evaluations;
        out.asked.push_back(sigma);
        for (size_t i = 0; i < x.size(); ++i) d[i] = model.denoise(x[i], sigma);
        for (size_t i = 0; i < u.size(); ++i) u[i] = model.uncond(x[i], sigma);
      },
      [&](std::span<double> z, const NoiseDraw& draw) {
        ++out.draws;
        model.noise(z, draw);
      });
  out.x = latents.values(sample(sampler, latents, latents.put(x), call));
  return out;
}

}  // namespace ebb::testing
