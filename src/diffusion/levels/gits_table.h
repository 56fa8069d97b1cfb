// The optimised lists of GITS for Stable Diffusion.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

inline constexpr int64_t gits_coefficients = 15;  // 0.80, 0.85, ... 1.50

// steps + 1 falling levels, from the largest of Stable Diffusion's table to the smallest; 2 to 20
// steps.
std::vector<double> gits_levels(int64_t coefficient, int64_t steps);

}  // namespace ebb
