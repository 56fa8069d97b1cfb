// Shared by res_multistep and its CFG++ form: D extrapolated linearly through the last two
// predictions, exactly integrated, then noise is added back (RES: Zhang et al. 2023,
// arXiv:2308.02157).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

struct ResOptions {
  EtaOptions noise{.eta = 0};
  void fields(auto&& f) { noise.fields(f); }
  void check() const { noise.check(); }
};

// With `cfg_pp` the state moves by the guided prediction and from it along the unconditional one.
Latent res_multistep(Run& run, Latent x, const ResOptions& o, bool cfg_pp);

}  // namespace ebb
