#include "diffusion/guidance/sample.h"

#include <algorithm>
#include <cmath>

namespace ebb {

double dot(Values a, Values b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm(Values a) { return std::sqrt(dot(a, a)); }

double mean_of(Values a) {
  double sum = 0;
  for (const double v : a) sum += v;
  return a.empty() ? 0 : sum / static_cast<double>(a.size());
}

double deviation(Values a) {
  if (a.size() < 2) return 0;
  const double mean = mean_of(a);
  double sum = 0;
  for (const double v : a) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(a.size() - 1));
}

double largest(Values a) {
  double out = 0;
  for (const double v : a) out = std::max(out, std::abs(v));
  return out;
}

double quantile(Values a, double q) {
  if (a.empty()) return 0;
  std::vector<double> sizes(a.begin(), a.end());
  for (double& v : sizes) v = std::abs(v);
  const double place = q * static_cast<double>(sizes.size() - 1);
  const auto low = static_cast<int64_t>(place);
  std::nth_element(sizes.begin(), sizes.begin() + low, sizes.end());
  const double below = sizes[static_cast<size_t>(low)];
  if (place == static_cast<double>(low)) return below;
  const double above = *std::min_element(sizes.begin() + low + 1, sizes.end());
  return below + (place - static_cast<double>(low)) * (above - below);
}

std::vector<double> difference(Values a, Values b) {
  std::vector<double> out(a.begin(), a.end());
  for (size_t i = 0; i < out.size(); ++i) out[i] -= b[i];
  return out;
}

void rescale_to(std::span<double> a, Values like, double share) {
  const double own = deviation(a);
  if (own == 0 || share == 0) return;
  const double factor = share * deviation(like) / own + (1 - share);
  for (double& v : a) v *= factor;
}

}  // namespace ebb
