// Pyramids of images: each level holds what the next, half as large, does not (Burt and Adelson
// 1983), as kornia builds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

// One channel.
struct Plane {
  int64_t height = 0, width = 0;
  std::vector<double> values;
  double& at(int64_t y, int64_t x) { return values[static_cast<size_t>(y * width + x)]; }
  double at(int64_t y, int64_t x) const { return values[static_cast<size_t>(y * width + x)]; }
};

// Weighted sums with `kernel` (an odd number of weights) along both sides; the image goes on
// mirrored about its border values.
Plane blurred(const Plane& image, const std::vector<double>& kernel);
// Weights exp(-k^2 / (2 sigma^2)) with the sum 1.
std::vector<double> gauss_kernel(int64_t size, double sigma);

// `levels` planes, the finest first; the last one is what is left. Sides must be multiples of
// 2^(levels - 1).
std::vector<Plane> laplacian(Plane image, int64_t levels);
Plane collapsed(const std::vector<Plane>& pyramid);

}  // namespace ebb
