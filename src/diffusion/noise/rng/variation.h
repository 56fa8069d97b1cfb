// Variations of an image's initial noise, [C,H,W]: between two seeds, and from another size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

struct NoisePlanes {
  int64_t channels = 0, height = 0, width = 0;

  size_t size() const { return static_cast<size_t>(channels * height * width); }
};

// Spherical interpolation from `low` (strength 0) to `high` (1), column by column (a column: one
// channel, one x). Nearly parallel columns, on average, use linear interpolation with swapped ends,
// as in Stable Diffusion web UI. Collinear or zero columns are interpolated linearly.
std::vector<double> slerp(double strength, std::span<const double> low,
                          std::span<const double> high, const NoisePlanes& shape);

// Copies the centre of `small` to the centre of `noise`.
void paste_centered(std::span<const double> small, const NoisePlanes& small_shape,
                    std::span<double> noise, const NoisePlanes& shape);

}  // namespace ebb
