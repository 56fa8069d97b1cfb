// What kernels ask of a chip when they say what they support. Known without a driver for chips with
// a name here, so that plans for them can be looked at anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/device.h"

namespace ebb::cuda {

struct Chip {
  std::string name = "H100 SXM";
  int capability = 90;  // 90: sm_90
  int sm_count = 132;
  int64_t shared_per_block = 227 << 10;  // bytes, with opt-in
  double clock = 1.83e9, bytes_per_second = 3.35e12;
  // Co-resident clusters of `cluster` thread blocks at `blocks` thread blocks per SM; 0 where such
  // clusters do not run. If not set: an estimate.
  std::function<int64_t(int cluster, int64_t blocks)> max_clusters = {};
};

// By clock, SMs and the matrix units of the architecture.
Peaks peaks_of(const Chip& chip);

// "h100", "h200". Throws Error that names the known ones.
Chip described_chip(std::string_view name);

}  // namespace ebb::cuda
