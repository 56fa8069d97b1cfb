// Kernel distance between two sets of features (Binkowski et al. 2018,
// https://arxiv.org/abs/1801.01401): the unbiased squared maximum mean discrepancy with the kernel
// (x . y / D + 1)^3. In Inception features it is KID.
#pragma once

#include <cstdint>
#include <functional>

#include "base/seed.h"
#include "core/tensor.h"
#include "runtime/context.h"

namespace ebb::train {

struct KernelDistanceOptions {
  int64_t subsets = 100, subset_size = 1000;
  Seed seed = 0;  // of what is in a subset
};

struct KernelDistance {
  double mean = 0, deviation = 0;  // over subsets
  // Fewer where there are fewer images: subsets of the smaller set's size, one if they are all.
  int64_t subsets = 0, subset_size = 0;
};

// Of rows f32 [N,D] and [M,D], on the context's device. The estimate may be below 0. `between` is
// called before every subset and may throw. Throws Error unless both have the same width and at
// least 2 rows.
KernelDistance kernel_distance(const Tensor& a, const Tensor& b, const Context& context,
                               const KernelDistanceOptions& options = {},
                               const std::function<void()>& between = {});

}  // namespace ebb::train
