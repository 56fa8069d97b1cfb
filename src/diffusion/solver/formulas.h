// Arithmetic shared by samplers, in double: ancestral steps, churn, phi functions.
#pragma once

#include <cmath>
#include <limits>

#include "base/error.h"
#include "diffusion/solver/run.h"

namespace ebb {

// phi_k(z) = (phi_{k-1}(z) - 1 / (k-1)!) / z, phi_0 = exp, for k >= 1: the weights of exponential
// integrators (Hochbruck and Ostermann 2010). Exact near 0 too.
double phi(int k, double z);

// The predicted noise in x at level sigma, (x - D) / sigma; without alpha it is the slope
// dx/dsigma.
Latent noise_in(Run& run, Latent& x, double sigma);

// A stochastic step from one level to another: a deterministic one to `down`, then
// x = scale x + noise z.
struct AncestralStep {
  double down = 0, scale = 1, noise = 0;
  bool draws = noise > 0;  // noise, used or not
};
// On VE: noise = min(to, eta to sqrt(from^2 - to^2) / from), down^2 = to^2 - noise^2 (Song et al.
// 2021, DDIM, equation 16). On flow models with the dialect's flow_ancestral: down = to (1 + (to /
// from - 1) eta), and scale and noise lead to alpha(to) data + to noise.
AncestralStep ancestral_step(const Run& run, double from, double to, double eta);
AncestralStep ancestral_step_ve(const Run& run, double from, double to, double eta);
AncestralStep ancestral_step_ve(double from, double to, double eta);  // no unused draws
// The first of them on flow models only with the dialect's flow_res_ancestral.
AncestralStep res_ancestral_step(const Run& run, double from, double to, double eta);
// Its second half: scales and, if there is noise to add, draws.
void renoise(Run& run, Latent& x, const AncestralStep& step, double from, double to,
             double s_noise);

// Options of samplers that renew noise (Karras et al. 2022, arXiv:2206.00364, algorithm 2).
struct ChurnOptions {
  double s_churn = 0;
  double s_tmin = 0, s_tmax = std::numeric_limits<double>::infinity();
  double s_noise = 1;
  void fields(auto&& f) {
    f("s_churn", s_churn, "noise renewed over all steps; 0: none");
    f("s_tmin", s_tmin, "smallest noise level at which noise is renewed");
    f("s_tmax", s_tmax, "largest noise level at which noise is renewed");
    f("s_noise", s_noise, "standard deviation of renewed noise");
  }
  void check() const;
};
// Throws Error for noise that is added as if alpha were 1 on flow models, unless the dialect
// accepts it.
void check_flow_noise(const Run& run, std::string_view option, double value);
// The space whose lambda and alpha stochastic samplers use.
inline Space sde_space(const Run& run) { return run.dialect().flow_sde ? run.space() : Space::ve; }
// Raises the noise of x at level `i`; returns the level reached. `draws_unused`: draws in any case.
double churn(Run& run, Latent& x, int64_t i, const ChurnOptions& options, bool draws_unused);
inline double churn(Run& run, Latent& x, int64_t i, const ChurnOptions& options) {
  return churn(run, x, i, options, run.dialect().draws_unused_churn);
}

// Options of ancestral and stochastic samplers.
struct EtaOptions {
  double eta = 1, s_noise = 1;
  void fields(auto&& f) {
    f("eta", eta, "share of noise that is renewed in each step; 0: none, deterministic");
    f("s_noise", s_noise, "standard deviation of renewed noise");
  }
  void check() const;
};

void check_not_negative(std::string_view option, double value);
void check_finite(std::string_view option, double value);
// Throws Error with the nearest of `known`.
void check_choice(std::string_view option, std::string_view value,
                  const std::vector<std::string>& known);

}  // namespace ebb
