#include "diffusion/precond.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace ebb {

Precond::Precond(const DiffusionConfig& config) : config_(config) {
  check(config_);
  if (config_.discrete())
    table_ = beta_table(config_.precond == "iddpm" ? "cosine" : config_.betas, config_.timesteps);
  const PrecondFormulas f = formulas(Scalar::input(0));
  const Scalar results[] = {f.skip, f.out, f.in, f.noise.value_or(0.0)};
  expr_ = Expr(1, results);
}

PrecondFormulas Precond::formulas(const Scalar& s) const {
  if (config_.precond == "edm") {
    const double d = config_.sigma_data;
    const Scalar square = s * s + d * d, inverse = rsqrt(square);
    return {d * d / square, s * d * inverse, inverse, s * s / square, log(s) * config_.noise_scale};
  }
  if (config_.precond == "ve") return {1.0, s, 1.0, 0.0, log(s * 0.5)};
  const Scalar square = s * s + 1.0, inverse = rsqrt(square);
  if (config_.precond == "v")
    return {1.0 / square, -(s * inverse), inverse, s * s / square, std::nullopt};
  PrecondFormulas f{1.0, -s, inverse, 0.0, std::nullopt};
  if (config_.precond == "vp") f.noise = vp_time(s) * vp_time_scale;
  return f;
}

PrecondNumbers Precond::at(double sigma) const {
  std::array<double, 4> y{};
  expr_.evaluate(std::array{sigma}, y);
  if (config_.precond == "iddpm") y[3] = std::round(timestep_of(round_sigma(sigma)));
  if (config_.precond == "eps" || config_.precond == "v") y[3] = timestep_of(sigma);
  return {y[0], y[1], y[2], y[3]};
}

double Precond::sigma_min() const {
  if (config_.discrete()) return table_.sigma.front();
  if (config_.precond == "vp") return vp_sigma(vp_smallest_time);
  return config_.precond == "ve" ? ve_sigma_min : 0;
}

double Precond::sigma_max() const {
  if (config_.discrete()) return table_.sigma.back();
  if (config_.precond == "vp") return vp_sigma(1.0);
  return config_.precond == "ve" ? ve_sigma_max : std::numeric_limits<double>::infinity();
}

double Precond::round_sigma(double sigma) const {
  if (config_.precond != "iddpm") return sigma;
  const std::vector<double>& levels = table_.sigma;
  const auto above = std::lower_bound(levels.begin(), levels.end(), sigma);
  if (above == levels.begin()) return *above;
  if (above == levels.end()) return levels.back();
  return *above - sigma < sigma - *(above - 1) ? *above : *(above - 1);
}

double Precond::timestep_of(double sigma) const {
  require(config_.discrete(), "precond: ", config_.precond, " has no timesteps");
  const std::vector<double>& levels = table_.sigma;
  const auto above = std::lower_bound(levels.begin(), levels.end(), sigma);
  if (above == levels.begin()) return 0;
  if (above == levels.end()) return static_cast<double>(levels.size() - 1);
  const double low = std::log(*(above - 1)), high = std::log(*above);
  return static_cast<double>(above - 1 - levels.begin()) + (std::log(sigma) - low) / (high - low);
}

}  // namespace ebb
