// Loops over pixels as generated kernels: reductions over the pixels of every channel and over
// groups of channels, and elementwise results, with one read of the images. Prepared once and run
// many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "codegen/loops/pixel_kernel.h"

namespace ebb::cuda {

// Sums are in f32 and in a fixed order. An output may alias an input of the same type; a segment
// only the same segment.
class PixelPass {
 public:
  static std::vector<codegen::PixelLayout> layouts(const codegen::PixelForm& form,
                                                   const CudaDevice& device);
  // Whether there is a layout.
  static bool fits(const codegen::PixelForm& form, const CudaDevice& device);
  // With the layout of this tile, cluster and number of threads, or the best guess if it is not
  // among them. Throws Error if there is none.
  PixelPass(const codegen::PixelForm& form, int64_t tile, int64_t cluster, int64_t threads,
            CudaDevice& device);
  // All segments, in order; of slices, the whole tensors; concatenated outputs are one tensor.
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace ebb::cuda
