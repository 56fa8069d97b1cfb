// Strengths: factors that users give adapters, control networks and words.
#pragma once

#include <cmath>

namespace ebb {

// f16 holds numbers to 65504: with a larger factor, little that it multiplies stays finite.
inline constexpr double most_strength = 10'000;

inline bool is_strength(double v) { return std::isfinite(v) && std::abs(v) <= most_strength; }

}  // namespace ebb
