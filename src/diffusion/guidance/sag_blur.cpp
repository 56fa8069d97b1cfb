#include "diffusion/guidance/sag_blur.h"

#include <cmath>

#include "base/error.h"
#include "diffusion/guidance/pyramid.h"

namespace ebb {

std::vector<double> sag_attention(const SagMap& map, const GuidedShape& shape) {
  const int64_t places = map.height * map.width;
  require(map.heads > 0 && map.height > 0 && map.width > 0 &&
              map.attention.size() == static_cast<size_t>(map.heads * places * places),
          "sag_attention: a map of ", map.heads, " heads over ", map.height, " x ", map.width,
          " places has ", map.heads * places * places, " values (got ", map.attention.size(), ")");
  std::vector<double> sums(static_cast<size_t>(places), 0.0);
  for (int64_t row = 0; row < map.heads * places; ++row)
    for (int64_t p = 0; p < places; ++p)
      sums[static_cast<size_t>(p)] +=
          static_cast<double>(map.attention[static_cast<size_t>(row * places + p)]) /
          static_cast<double>(map.heads);
  std::vector<double> out;
  for (int64_t y = 0; y < shape.height; ++y)
    for (int64_t x = 0; x < shape.width; ++x) {
      const int64_t place = y * map.height / shape.height * map.width + x * map.width / shape.width;
      out.push_back(sums[static_cast<size_t>(place)]);
    }
  return out;
}

void sag_blur(Values uncond, Values attention, const GuidedShape& shape, const SagBlur& how,
              std::span<double> out) {
  require(how.size % 2 == 1 && how.size > 0, "sag_blur: size must be odd (", how.size, ")");
  require(std::isfinite(how.sigma) && how.sigma > 0, "sag_blur: sigma must be positive (",
          how.sigma, ")");
  require(uncond.size() == static_cast<size_t>(shape.sample()) && out.size() == uncond.size(),
          "sag_blur: a sample has ", shape.sample(), " values (got ", uncond.size(), " for ",
          out.size(), ")");
  require(attention.size() == static_cast<size_t>(shape.pixels()),
          "sag_blur: attention must have a value per pixel (", attention.size(), " for ",
          shape.pixels(), ")");
  const std::vector<double> kernel = gauss_kernel(how.size, how.sigma);
  for (int64_t k = 0; k < shape.channels; ++k) {
    Plane plane{shape.height, shape.width, {}};
    for (int64_t p = 0; p < shape.pixels(); ++p)
      plane.values.push_back(uncond[static_cast<size_t>(shape.at(p, k))]);
    const Plane soft = blurred(plane, kernel);
    for (size_t p = 0; p < attention.size(); ++p) {
      const Plane& from = attention[p] > how.threshold ? soft : plane;
      out[static_cast<size_t>(shape.at(static_cast<int64_t>(p), k))] = from.values[p];
    }
  }
}

}  // namespace ebb
