// Frechet distance between two sets of features taken as Gaussians (Dowson and Landau 1982; Heusel
// et al. 2017): |m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2).
#pragma once

#include "core/tensor.h"

namespace ebb::train {

// Of rows f32 [N,D] and [M,D]; covariances are divided by N - 1. In double. Throws Error unless
// both have the same width and at least 2 rows.
double frechet_distance(const Tensor& a, const Tensor& b);

}  // namespace ebb::train
