// Space: the mixture of data and noise at a noise level, x = alpha(sigma) data + sigma noise.
#pragma once

#include <cmath>
#include <string_view>

namespace ebb {

// ve: alpha = 1 (samplers of Stable Diffusion and EDM); flow: alpha = 1 - sigma (rectified flow:
// SD3, Flux), with levels up to 1.
enum class Space { ve, flow };

inline std::string_view name_of(Space s) { return s == Space::ve ? "ve" : "flow"; }

inline double alpha_of(Space s, double sigma) { return s == Space::ve ? 1 : 1 - sigma; }

// 1 / sqrt(alpha_bar) at a level of Space::ve: x there, of a state that is sqrt(alpha_bar) x.
inline double vp_norm(double sigma) { return std::sqrt(1 + sigma * sigma); }

// lambda = ln(alpha / sigma), half the logarithm of the signal-to-noise ratio; infinite at sigma 0
// and at flow's 1.
inline double lambda_of(Space s, double sigma) {
  return s == Space::ve ? -std::log(sigma) : std::log((1 - sigma) / sigma);
}
inline double sigma_of(Space s, double lambda) {  // its inverse
  return s == Space::ve ? std::exp(-lambda) : 1 / (1 + std::exp(lambda));
}

}  // namespace ebb
