#include "diffusion/solver/latents.h"

#include <algorithm>
#include <cmath>

namespace ebb {

void clip_to_deviations(std::span<double> z, double deviations) {
  if (z.size() < 2) return;
  double mean = 0, square = 0;
  for (const double v : z) mean += v / static_cast<double>(z.size());
  for (const double v : z) square += (v - mean) * (v - mean);
  const double limit = deviations * std::sqrt(square / static_cast<double>(z.size() - 1));
  for (double& v : z) v = std::clamp(v, -limit, limit);
}

double scaled_distance(std::span<const double> a, std::span<const double> b,
                       std::span<const double> before, Latents::Tolerance tolerance) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double largest = std::max(std::abs(a[i]), std::abs(before[i]));
    const double e = (a[i] - b[i]) / std::max(tolerance.atol, tolerance.rtol * largest);
    sum += e * e;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

}  // namespace ebb
