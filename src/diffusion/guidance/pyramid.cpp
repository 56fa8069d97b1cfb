#include "diffusion/guidance/pyramid.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

const std::vector<double> binomial = {1 / 16.0, 4 / 16.0, 6 / 16.0, 4 / 16.0, 1 / 16.0};

int64_t mirrored(int64_t i, int64_t n) {
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

Plane blurred_rows(const Plane& image, const std::vector<double>& kernel) {
  Plane out{image.height, image.width, std::vector<double>(image.values.size())};
  const auto reach = static_cast<int64_t>(kernel.size()) / 2;
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t k = -reach; k <= reach; ++k)
        out.at(y, x) +=
            kernel[static_cast<size_t>(k + reach)] * image.at(y, mirrored(x + k, image.width));
  return out;
}

Plane turned(const Plane& image) {
  Plane out{image.width, image.height, std::vector<double>(image.values.size())};
  for (int64_t y = 0; y < image.height; ++y)
    for (int64_t x = 0; x < image.width; ++x) out.at(x, y) = image.at(y, x);
  return out;
}

Plane halved(const Plane& image) {
  const Plane soft = blurred(image, binomial);
  Plane out{image.height / 2, image.width / 2, {}};
  out.values.resize(static_cast<size_t>(out.height * out.width));
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x)
      out.at(y, x) = (soft.at(2 * y, 2 * x) + soft.at(2 * y, 2 * x + 1) +
                      soft.at(2 * y + 1, 2 * x) + soft.at(2 * y + 1, 2 * x + 1)) /
                     4;
  return out;
}

// Each side twice as long, between values along a line: values lie in the middle of their pixels.
Plane doubled_rows(const Plane& image) {
  Plane out{image.height, image.width * 2, {}};
  out.values.resize(image.values.size() * 2);
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x) {
      const int64_t beside = std::clamp<int64_t>(x / 2 + (x % 2 == 1 ? 1 : -1), 0, image.width - 1);
      out.at(y, x) = 0.75 * image.at(y, x / 2) + 0.25 * image.at(y, beside);
    }
  return out;
}

Plane doubled(const Plane& image) {
  return blurred(turned(doubled_rows(turned(doubled_rows(image)))), binomial);
}

}  // namespace

std::vector<double> gauss_kernel(int64_t size, double sigma) {
  std::vector<double> out;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double k = static_cast<double>(i) - static_cast<double>(size - 1) / 2;
    out.push_back(std::exp(-k * k / (2 * sigma * sigma)));
    sum += out.back();
  }
  for (double& v : out) v /= sum;
  return out;
}

Plane blurred(const Plane& image, const std::vector<double>& kernel) {
  return turned(blurred_rows(turned(blurred_rows(image, kernel)), kernel));
}

std::vector<Plane> laplacian(Plane image, int64_t levels) {
  std::vector<Plane> out;
  for (int64_t l = 1; l < levels; ++l) {
    Plane half = halved(image);
    const Plane again = doubled(half);
    for (size_t i = 0; i < image.values.size(); ++i) image.values[i] -= again.values[i];
    out.push_back(std::move(image));
    image = std::move(half);
  }
  out.push_back(std::move(image));
  return out;
}

Plane collapsed(const std::vector<Plane>& pyramid) {
  Plane image = pyramid.back();
  for (size_t l = pyramid.size() - 1; l-- > 0;) {
    image = doubled(image);
    for (size_t i = 0; i < image.values.size(); ++i) image.values[i] += pyramid[l].values[i];
  }
  return image;
}

}  // namespace ebb
