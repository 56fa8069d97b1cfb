// Draws: the results of successive `randn` calls of a batch's generators, in ebb's layout.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "diffusion/noise/noise.h"
#include "diffusion/noise/rng/generator.h"

namespace ebb {

// The images that are drawn together, in the order of other programs, and their layout. A single
// generator draws images 0 to the largest index of the batch, so the batch may be part of a larger
// one; one generator per image draws only those of the batch.
class BatchLayout {
 public:
  BatchLayout(const NoiseCall& call, bool per_image);

  int64_t pictures() const { return pictures_; }
  size_t elements() const { return elements_; }
  size_t size() const { return static_cast<size_t>(pictures_) * elements_; }
  // Selects the images of the batch; [C,H,W] becomes [H,W,C].
  void arrange(std::span<const double> drawn, std::span<double> out) const;

 private:
  std::vector<int64_t> picked_;
  int64_t pictures_;
  size_t elements_, channels_;
};

// The seeds of a batch's generators: one for all, or one per image. Throws Error for several seeds
// and one generator.
std::vector<uint64_t> generator_seeds(const NoiseCall& call, bool per_image);

class Draws {
 public:
  Draws(GeneratorKind kind, const NoiseCall& call, bool per_image);

  // The `index`-th call (from 0); earlier calls are made first if necessary.
  void operator()(int64_t index, std::span<double> out);

 private:
  void restart();
  void next();

  GeneratorKind kind_;
  std::vector<uint64_t> seeds_;
  BatchLayout layout_;
  std::vector<std::unique_ptr<Generator>> generators_;
  int64_t next_ = 0;
  std::vector<double> drawn_;
};

// The first call for the start, the others for the steps.
Noise consecutive_noise(const GeneratorKind& kind, const NoiseCall& call, bool per_image);

}  // namespace ebb
