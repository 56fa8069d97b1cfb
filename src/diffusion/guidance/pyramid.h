// Laplacian pyramids: each level holds the detail missing in the next, half as large (Burt and
// Adelson 1983), with kornia's filters.
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

// Separable convolution with `kernel` (odd size); the image is mirrored at its border.
Plane blurred(const Plane& image, const std::vector<double>& kernel);
// Weights exp(-k^2 / (2 sigma^2)) with the sum 1.
std::vector<double> gauss_kernel(int64_t size, double sigma);

// `levels` planes, the finest first; the last one is the residual image. Sides must be multiples of
// 2^(levels - 1).
std::vector<Plane> laplacian(Plane image, int64_t levels);
Plane collapsed(const std::vector<Plane>& pyramid);

}  // namespace ebb
