// Loops over pixels as generated kernels: reductions over the pixels of every channel and over
// groups of channels, and elementwise results, with one read of the images. Prepared once and run
// many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/cuda/generated/pixel_text.h"

namespace ebb::cuda {

// Sums are in f32 and in a fixed order. An output may alias an input of the same type; a segment
// only the same segment.
class PixelPass {
 public:
  static std::vector<PixelLayout> layouts(const PixelForm& form, const CudaDevice& device);
  // Whether there is a layout.
  static bool fits(const PixelForm& form, const CudaDevice& device);
  // With the layout of this tile, cluster and number of threads, or the best guess if it is not
  // among them. Throws Error if there is none.
  PixelPass(const PixelForm& form, int64_t tile, int64_t cluster, int64_t threads,
            CudaDevice& device);
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::cuda
