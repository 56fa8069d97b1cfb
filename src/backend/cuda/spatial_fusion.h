// Passes over images as generated kernels: sums over the pixels of every channel and over groups of
// channels, what is made of them and of the images, which are read once. Prepared once and run many
// times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/spatial_text.h"

namespace ebb::cuda {

// Sums are in f32 and in a fixed order. An output may be the memory of an input of the same
// type, a part of one only that of the same part.
class SpatialPass {
 public:
  static std::vector<SpatialLayout> layouts(const SpatialForm& form, const CudaDevice& device);
  // Whether there is a layout.
  static bool fits(const SpatialForm& form, const CudaDevice& device);
  // With one of the layouts.
  SpatialPass(const SpatialForm& form, const SpatialLayout& layout, CudaDevice& device);
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::cuda
