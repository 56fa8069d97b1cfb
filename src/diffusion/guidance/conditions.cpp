#include "diffusion/guidance/conditions.h"

#include <algorithm>

#include "base/error.h"

namespace ebb {
namespace {

// Added to the sum of weights, so that nothing is divided by 0.
constexpr double least_weight = 1e-37;

// Of a place within [from, from + size) of a side of length `side`.
double feathered(int64_t at, int64_t from, int64_t size, int64_t side, int64_t feather) {
  double out = 1;
  if (feather <= 0) return out;
  const int64_t before = at - from, after = from + size - 1 - at;
  const auto ramp = [feather](int64_t d) {
    return d < feather ? static_cast<double>(d + 1) / static_cast<double>(feather) : 1.0;
  };
  if (from > 0) out *= ramp(before);
  if (from + size < side) out *= ramp(after);
  return out;
}

}  // namespace

double weight_at(const ConditionWeight& w, const GuidedShape& shape, int64_t pixel) {
  double out = w.strength;
  if (!w.mask.empty()) out *= w.mask[static_cast<size_t>(pixel)];
  if (!w.area) return out;
  const ConditionWeight::Area& a = *w.area;
  const int64_t y = pixel / shape.width, x = pixel % shape.width;
  if (y < a.y || y >= a.y + a.height || x < a.x || x >= a.x + a.width) return 0;
  return out * feathered(y, a.y, a.height, shape.height, w.feather) *
         feathered(x, a.x, a.width, shape.width, w.feather);
}

void average(std::span<const WeightedPrediction> predictions, double sigma,
             const GuidedShape& shape, std::span<double> out) {
  for (const WeightedPrediction& p : predictions)
    require(p.weight.mask.empty() || p.weight.mask.size() == static_cast<size_t>(shape.pixels()),
            "guidance: a condition's mask must have a value per pixel (", p.weight.mask.size(),
            " for ", shape.pixels(), ")");
  std::fill(out.begin(), out.end(), 0.0);
  for (int64_t pixel = 0; pixel < shape.pixels(); ++pixel) {
    double total = least_weight;
    for (const WeightedPrediction& p : predictions)
      if (p.weight.holds(sigma)) total += weight_at(p.weight, shape, pixel);
    for (const WeightedPrediction& p : predictions) {
      if (!p.weight.holds(sigma)) continue;
      const double share = weight_at(p.weight, shape, pixel) / total;
      for (int64_t n = 0; n < shape.batch; ++n)
        for (int64_t k = 0; k < shape.channels; ++k) {
          const auto i = static_cast<size_t>(n * shape.sample() + shape.at(pixel, k));
          out[i] += share * p.prediction[i];
        }
    }
  }
}

void joined_by_and(Values uncond, std::span<const Values> conds, Values weights,
                   std::span<double> out) {
  require(conds.size() == weights.size(), "guidance: each condition needs a weight (", conds.size(),
          " and ", weights.size(), ")");
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = uncond[i];
    for (size_t k = 0; k < conds.size(); ++k) sum += weights[k] * (conds[k][i] - uncond[i]);
    out[i] = sum;
  }
}

}  // namespace ebb
