// Variations of a picture's first noise, [C,H,W]: between two seeds, and of another size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ebb {

struct NoisePlanes {
  int64_t channels = 0, height = 0, width = 0;

  size_t size() const { return static_cast<size_t>(channels * height * width); }
};

// The way from `low` (strength 0) to `high` (1) on the arc between them, column by column (a
// column: one channel, one x). Where the columns are nearly the same, on average, the ends of the
// straight line are the other way round, as in Stable Diffusion web UI. Columns on one line, or of
// zeros, are mixed along a straight line.
std::vector<double> slerp(double strength, std::span<const double> low,
                          std::span<const double> high, const NoisePlanes& shape);

// Puts the middle of `small` on the middle of `noise`.
void paste_centered(std::span<const double> small, const NoisePlanes& small_shape,
                    std::span<double> noise, const NoisePlanes& shape);

}  // namespace ebb
