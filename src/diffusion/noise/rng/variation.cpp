#include "diffusion/noise/rng/variation.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace ebb {
namespace {

// Of the two columns that begin at a and b: a.b / (|a| |b|); none if one of them is 0.
std::optional<double> cosine(const double* a, const double* b, const NoisePlanes& shape) {
  double aa = 0, bb = 0, ab = 0;
  for (int64_t y = 0; y < shape.height; ++y, a += shape.width, b += shape.width) {
    aa += *a * *a;
    bb += *b * *b;
    ab += *a * *b;
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return std::clamp(ab / std::sqrt(aa * bb), -1.0, 1.0);
}

// Of the two ends of an arc, a share of the way along it. Where they lie on one line there is no
// arc, or there are many: then of the straight line.
struct Shares {
  double low, high;
};

Shares arc(double strength, std::optional<double> cosine) {
  const double angle = std::acos(cosine.value_or(1)), sine = std::sin(angle);
  if (sine < 1e-6) return {1 - strength, strength};
  return {std::sin((1 - strength) * angle) / sine, std::sin(strength * angle) / sine};
}

// What is left of the larger, on one axis: `size` cells from `to` on are those of the smaller one
// from `from` on.
struct Overlap {
  int64_t to, from, size;
};

Overlap overlap(int64_t size, int64_t small) {
  const int64_t shift = (size - small) >> 1;  // rounded down
  return shift >= 0 ? Overlap{shift, 0, small} : Overlap{0, -shift, small + 2 * shift};
}

}  // namespace

std::vector<double> slerp(double strength, std::span<const double> low,
                          std::span<const double> high, const NoisePlanes& shape) {
  const auto columns = static_cast<size_t>(shape.channels * shape.width);
  const auto first = [&](size_t column) {
    const auto width = static_cast<size_t>(shape.width);
    return column / width * static_cast<size_t>(shape.height) * width + column % width;
  };
  std::vector<std::optional<double>> cosines(columns);
  double mean = 0;
  for (size_t k = 0; k < columns; ++k) {
    cosines[k] = cosine(&low[first(k)], &high[first(k)], shape);
    mean += cosines[k].value_or(0) / static_cast<double>(columns);
  }
  std::vector<double> out(shape.size());
  for (size_t k = 0; k < columns; ++k) {
    Shares share{strength, 1 - strength};
    if (mean <= 0.9995) share = arc(strength, cosines[k]);
    size_t i = first(k);
    for (int64_t y = 0; y < shape.height; ++y, i += static_cast<size_t>(shape.width))
      out[i] = static_cast<double>(static_cast<float>(share.low * low[i] + share.high * high[i]));
  }
  return out;
}

void paste_centered(std::span<const double> small, const NoisePlanes& small_shape,
                    std::span<double> noise, const NoisePlanes& shape) {
  const Overlap rows = overlap(shape.height, small_shape.height);
  const Overlap columns = overlap(shape.width, small_shape.width);
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t y = 0; y < rows.size; ++y) {
      const int64_t from = (c * small_shape.height + rows.from + y) * small_shape.width;
      const int64_t to = (c * shape.height + rows.to + y) * shape.width;
      std::copy_n(small.begin() + from + columns.from, columns.size,
                  noise.begin() + to + columns.to);
    }
}

}  // namespace ebb
