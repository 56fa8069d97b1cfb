// Shared by ddim and ddim_cfg_pp: a step to the next level along the predicted noise, a fraction of
// it renewed (Song et al. 2021, arXiv:2010.02502, equation 12).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

struct DdimOptions {
  EtaOptions noise = {.eta = 0};
  void fields(auto&& f) { noise.fields(f); }
  void check() const {
    noise.check();
    require(noise.eta <= 1, "ddim: eta must not be above 1 (", noise.eta, ")");
  }
};

// With `cfg_pp` it is the unconditionally predicted noise (Chung et al. 2024, arXiv:2406.08070).
Latent ddim(Run& run, Latent x, const DdimOptions& o, bool cfg_pp);

}  // namespace ebb
