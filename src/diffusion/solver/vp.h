// The continuous variance-preserving process (Song et al. 2021, arXiv:2011.13456): beta(t) = beta_d
// t + beta_min, sigma(t) = sqrt(exp(beta_d t^2 / 2 + beta_min t) - 1) for t in [0, 1].
#pragma once

#include <cmath>

namespace ebb {

struct VpProcess {
  double beta_d = 19.9, beta_min = 0.1;
};

// S: double, or an expression with sqrt, expm1 and log1p of its own.
template <class S>
S vp_sigma(const S& t, const VpProcess& p = {}) {
  using std::expm1, std::sqrt;
  return sqrt(expm1(t * (t * (p.beta_d / 2) + p.beta_min)));
}
template <class S>
S vp_time(const S& sigma, const VpProcess& p = {}) {  // its inverse
  using std::log1p, std::sqrt;
  const S level = log1p(sigma * sigma);
  return (sqrt(level * (2 * p.beta_d) + p.beta_min * p.beta_min) - p.beta_min) / p.beta_d;
}
inline double vp_beta(double t, const VpProcess& p = {}) { return p.beta_d * t + p.beta_min; }
// d sigma / dt: sigma^2 + 1 = exp(b(t)), so 2 sigma sigma' = beta(t) (sigma^2 + 1).
inline double vp_sigma_slope(double t, const VpProcess& p = {}) {
  const double sigma = vp_sigma(t, p);
  return 0.5 * vp_beta(t, p) * (sigma + 1 / sigma);
}

}  // namespace ebb
