// The continuous variance-preserving process (Song et al. 2021, arXiv:2011.13456): beta(t) = beta_d
// t + beta_min, sigma(t) = sqrt(exp(beta_d t^2 / 2 + beta_min t) - 1) for t in [0, 1].
#pragma once

#include <cmath>

namespace ebb {

inline constexpr double vp_beta_d = 19.9, vp_beta_min = 0.1;

// S: double, or an expression with sqrt, expm1 and log1p of its own.
template <class S>
S vp_sigma(const S& t) {
  using std::expm1, std::sqrt;
  return sqrt(expm1(t * (t * (vp_beta_d / 2) + vp_beta_min)));
}
template <class S>
S vp_time(const S& sigma) {  // its inverse
  using std::log1p, std::sqrt;
  const S level = log1p(sigma * sigma);
  return (sqrt(level * (2 * vp_beta_d) + vp_beta_min * vp_beta_min) - vp_beta_min) / vp_beta_d;
}
inline double vp_beta(double t) { return vp_beta_d * t + vp_beta_min; }

}  // namespace ebb
