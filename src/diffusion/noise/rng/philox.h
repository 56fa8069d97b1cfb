// PyTorch's CUDA generator and the generator that imitates it on a CPU: Philox4x32-10 (Salmon et
// al. 2011), made normal by Box and Muller with the sine first.
#pragma once

#include "diffusion/noise/rng/generator.h"

namespace ebb {

// cuRAND's words in the order of PyTorch's kernel: thread i of the grid has a stream of its own and
// writes the elements i, i + threads, ... of the tensor. The grid is as large as the tensor but not
// larger than the GPU, so elements beyond `grid_limit` blocks of 256 depend on it.
class TorchCudaGenerator : public Generator {
 public:
  TorchCudaGenerator(uint64_t seed, NoiseType type, uint64_t grid_limit)
      : seed_(seed), type_(type), grid_limit_(grid_limit) {}

  void normal(std::span<double> out) override;

 private:
  uint64_t seed_;
  NoiseType type_;
  uint64_t grid_limit_;
  uint64_t offset_ = 0;  // words consumed of each stream
};

// The NV source of Stable Diffusion web UI and the `cuda` one of stable-diffusion.cpp: element i of
// the k-th call is the sine of the counter (k, 0, i, 0), which is what CUDA gives on any GPU for
// tensors that fit its grid.
class NvGenerator : public Generator {
 public:
  explicit NvGenerator(uint64_t seed) : seed_(seed) {}

  void normal(std::span<double> out) override;

 private:
  uint64_t seed_;
  uint32_t calls_ = 0;
};

}  // namespace ebb
