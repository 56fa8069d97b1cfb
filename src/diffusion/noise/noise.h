// Noise: the standard normal numbers that a sampler asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ebb {

// Which numbers are drawn: the `index`-th (from 0) of a run, for the way from one noise level to
// another.
struct NoiseDraw {
  int64_t index = 0;
  double from = 0, to = 0;
};

// Writes standard normal numbers for a batch, [N,...] row-major.
using NoiseFill = std::function<void(std::span<double> out, const NoiseDraw& draw)>;

// ---- our own: a function of (seed, image, draw), whatever the batch -------------------------

// Which pictures a batch holds.
struct ImageKeys {
  uint64_t seed = 0;
  std::vector<int64_t> images;
  int64_t elements = 0;  // of one image
};
std::vector<double> initial_noise(const ImageKeys& keys);  // [N * elements]
NoiseFill keyed_noise(ImageKeys keys);                     // other numbers for every draw

}  // namespace ebb
