#include "diffusion/guidance/sag_blur.h"

#include "base/error.h"
#include "diffusion/guidance/pyramid.h"

namespace ebb {

void sag_blur(Values uncond, Values attention, const GuidedShape& shape, const SagBlur& how,
              std::span<double> out) {
  require(how.size % 2 == 1 && how.size > 0, "sag_blur: size must be odd (", how.size, ")");
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
