#include "diffusion/start/strength.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/start/start_dialect.h"

namespace ebb {

StartPlan plan_strength(std::string_view dialect, int64_t steps, double strength,
                        const StrengthOptions& options) {
  require(steps > 0, "strength: needs at least one step (", steps, ")");
  require(strength >= 0 && strength <= 1, "strength: must lie in [0, 1] (", strength, ")");
  return start_dialect(dialect).plan(steps, strength, options);
}

std::vector<double> planned_levels(const std::vector<double>& sigmas, const StartPlan& plan) {
  const auto keep = std::min(static_cast<size_t>(plan.run) + 1, sigmas.size());
  return {sigmas.end() - static_cast<std::ptrdiff_t>(keep), sigmas.end()};
}

std::vector<double> stretch_of(const std::vector<double>& sigmas, const Stretch& s) {
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  const int64_t last = std::min(s.last.value_or(steps), steps);
  require(s.first >= 0 && last >= 0, "steps: must not be negative (", s.first, " to ", last, ")");
  const int64_t first = std::min(s.first, last);
  std::vector<double> out(sigmas.begin() + first, sigmas.begin() + last + 1);
  if (s.finish && last < steps) out.back() = 0;
  return out;
}

// ---- states --------------------------------------------------------------------------------

template <class T>
void start_state(std::span<const T> data, std::span<const T> noise, double sigma,
                 const StartOptions& o, std::span<T> out) {
  require(
      (data.empty() || data.size() == out.size()) && (noise.empty() || noise.size() == out.size()),
      "start: data (", data.size(), ") and noise (", noise.size(), ") must have ", out.size(),
      " values");
  const double level = o.noised_at.value_or(sigma);
  double alpha = alpha_of(o.space, level);
  double factor = level * o.noise_scale;
  if (o.full_variance && o.space == Space::ve) factor = vp_norm(level) * o.noise_scale;
  factor += o.extra_noise;
  if (o.noised_at) {
    const double same = vp_norm(sigma) / vp_norm(level);
    alpha *= same, factor *= same;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const double d = data.empty() ? 0 : static_cast<double>(data[i]);
    const double z = noise.empty() ? 0 : static_cast<double>(noise[i]);
    out[i] = static_cast<T>(alpha * d + factor * z);
  }
}

template <class T>
void finish_state(std::span<T> x, double sigma, Space space) {
  const double alpha = alpha_of(space, sigma);
  if (alpha == 1 || alpha == 0) return;  // of noise alone there is no data to scale
  for (T& v : x) v = static_cast<T>(static_cast<double>(v) / alpha);
}

template void start_state(std::span<const float>, std::span<const float>, double,
                          const StartOptions&, std::span<float>);
template void start_state(std::span<const double>, std::span<const double>, double,
                          const StartOptions&, std::span<double>);
template void finish_state(std::span<float>, double, Space);
template void finish_state(std::span<double>, double, Space);

bool starts_from_noise(const FirstNoise& first) {
  return start_dialect(first.dialect).full_variance(first);
}

}  // namespace ebb
