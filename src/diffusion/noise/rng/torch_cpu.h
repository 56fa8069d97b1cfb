// PyTorch's CPU generator: Mersenne Twister words (Matsumoto and Nishimura 1998), made normal by
// Box and Muller in blocks of 16 or, in small tensors, two at a time.
#pragma once

#include <optional>
#include <random>

#include "diffusion/noise/rng/generator.h"

namespace ebb {

// A tensor of 16 numbers and more is drawn as uniforms, then each block of 16 becomes normal: 8
// radii from the first half, 8 angles from the second. What does not fill the last block is drawn
// anew, as the last 16 of the tensor. Smaller tensors come in pairs, made in double, whose second
// number waits for the next request, in whichever call.
class TorchCpuGenerator : public Generator {
 public:
  TorchCpuGenerator(uint64_t seed, NoiseType type)  // its low 32 bits count
      : words_(static_cast<uint32_t>(seed)), type_(type) {}

  void normal(std::span<double> out) override;

 private:
  double uniform();
  double uniform53();
  double single();
  void fill(std::span<double> out);
  void fill_block(std::span<double> block);

  std::mt19937 words_;
  NoiseType type_;
  std::optional<double> waiting_;
};

}  // namespace ebb
