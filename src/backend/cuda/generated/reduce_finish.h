// The second stage of reductions: sums (or the maximum) of partial results.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "core/dtype.h"

namespace ebb::cuda {

// partial is [results, kept, chunks, inner]. The inner index runs through dims, some of which are
// reduced as well; out_k is [kept, the others].
struct FinishForm {
  int64_t kept = 1, chunks = 1;
  std::vector<int64_t> sizes;  // of the inner dims, outermost first
  std::vector<bool> reduced;   // of the inner dims
  bool maximum = false;
  float scale = 1;         // of sums
  std::vector<DType> out;  // by result
};
void reduce_finish(const FinishForm& form, const float* partial, std::span<void* const> out,
                   CudaDevice& device);

}  // namespace ebb::cuda
