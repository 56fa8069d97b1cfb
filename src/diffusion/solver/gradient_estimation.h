// Shared by gradient_estimation and its CFG++ form: Euler with a slope extrapolated from the last
// two (Permenter and Yuan 2023, arXiv:2306.04848).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

struct GradientOptions {
  double ge_gamma = 2;
  void fields(auto&& f) {
    f("ge_gamma", ge_gamma, "the slope's share against the one before; 1: Euler, 1.5: order 2");
  }
  void check() const { check_not_negative("ge_gamma", ge_gamma); }
};

// With `cfg_pp` slopes are the unconditional ones, from the guided prediction. A fraction eta of
// the noise is renewed in every step.
Latent gradient_estimation(Run& run, Latent x, const GradientOptions& o, const EtaOptions& noise,
                           bool cfg_pp);

}  // namespace ebb
