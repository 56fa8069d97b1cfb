// Frechet distance between two sets of features taken as Gaussians (Dowson and Landau 1982; Heusel
// et al. 2017): |m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2).
#pragma once

#include <vector>

#include "core/tensor.h"

namespace ebb::train {

// Mean and covariance (divided by n - 1) of rows, gathered batch by batch in double.
class FeatureStatistics {
 public:
  void add(const Tensor& features);  // f32 [N,D]; D as in the first call
  int64_t count() const { return count_; }
  int64_t width() const { return static_cast<int64_t>(sum_.size()); }

 private:
  friend double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);
  int64_t count_ = 0;
  std::vector<double> sum_;       // [D]
  std::vector<double> products_;  // [D,D], upper triangle
};

// Throws Error unless both have the same width and at least 2 rows.
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace ebb::train
