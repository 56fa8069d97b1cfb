// Several conditions as one prediction: averages by region and noise level, and prompts joined by
// AND.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "diffusion/guidance/sample.h"

namespace ebb {

// The region and the noise levels of a condition.
struct ConditionWeight {
  double strength = 1;
  // A rectangle, in pixels; none: everywhere. Its prediction is still of the whole image.
  struct Area {
    int64_t y = 0, x = 0, height = 1, width = 1;
  };
  std::optional<Area> area = {};
  // Weights ramp up over this many pixels from those edges of the rectangle that lie within the
  // image.
  int64_t feather = 0;
  std::span<const double> mask = {};  // [H * W]; empty: 1 everywhere
  // Noise levels at which it applies, both included.
  double sigma_lo = 0, sigma_hi = std::numeric_limits<double>::infinity();
  bool holds(double sigma) const { return sigma >= sigma_lo && sigma <= sigma_hi; }
};

// Weight of a condition at a pixel.
double weight_at(const ConditionWeight& w, const GuidedShape& shape, int64_t pixel);

struct WeightedPrediction {
  ConditionWeight weight;
  Values prediction;  // of the whole batch
};
// sum_k w_k D_k / sum_k w_k of those that apply at `sigma`; 0 where all weights are 0.
void average(std::span<const WeightedPrediction> predictions, double sigma,
             const GuidedShape& shape, std::span<double> out);

// u + sum_k w_k (c_k - u): for `cond` of guidance rules, which makes cfg u + sum_k w_k s (c_k - u).
void joined_by_and(Values uncond, std::span<const Values> conds, Values weights,
                   std::span<double> out);

}  // namespace ebb
