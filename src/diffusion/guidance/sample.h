// GuidedSample: one sample's predictions, in double, and the statistics that guidance rules use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

enum class Branch;

// The memory layout of a batch: [N,H,W,C], or [N,C,H,W] with channels_first.
struct GuidedShape {
  int64_t batch = 1, height = 1, width = 1, channels = 1;
  bool channels_first = false;

  int64_t pixels() const { return height * width; }
  int64_t sample() const { return pixels() * channels; }
  // Of one sample.
  int64_t at(int64_t pixel, int64_t channel) const {
    return channels_first ? channel * pixels() + pixel : pixel * channels + channel;
  }
};

struct GuidedSample {
  GuidedShape shape;
  int64_t index = 0;                             // in the batch
  std::span<double> result;                      // the result of earlier rules
  std::span<const double> state;                 // x
  std::vector<std::vector<double>> predictions;  // by Branch; empty: not there
  std::span<const double> operator[](Branch branch) const {
    return predictions[static_cast<size_t>(branch)];
  }
};

using Values = std::span<const double>;

double dot(Values a, Values b);
double norm(Values a);
double mean_of(Values a);
// The sample standard deviation (n - 1); 0 for less than two values.
double deviation(Values a);
double largest(Values a);  // of the absolute values
// Quantile q in [0, 1] of the absolute values, linearly interpolated.
double quantile(Values a, double q);
std::vector<double> difference(Values a, Values b);

// Rescales `a` to the standard deviation of `like`, by `share` (0: not, 1: fully). No change if `a`
// has none.
void rescale_to(std::span<double> a, Values like, double share);

}  // namespace ebb
