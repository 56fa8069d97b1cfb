// Target: what a kind of GPU can do, as far as those who write kernels and lay out loops have to
// know. Each backend fills it in.
#pragma once

#include <cstdint>
#include <functional>

#include "codegen/ir.h"

namespace ebb::codegen {

struct Target {
  int subgroup = 32;  // threads; a power of two
  bool dynamic_shared = false, async_copy = false, cluster = false;
  int sm_count = 132;
  int64_t shared_per_block = 227 << 10;  // bytes of dynamic shared memory
  // Co-resident clusters of `cluster` thread blocks at `blocks` thread blocks per SM; 0 where such
  // clusters do not run. If not set: an estimate.
  std::function<int64_t(int cluster, int64_t blocks)> max_clusters = {};

  bool has(Feature f) const {
    return f == Feature::none || (f == Feature::dynamic_shared && dynamic_shared) ||
           (f == Feature::async_copy && async_copy) || (f == Feature::cluster && cluster);
  }
};

}  // namespace ebb::codegen
