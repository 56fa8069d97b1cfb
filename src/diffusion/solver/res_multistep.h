// What res_multistep and its CFG++ form share: D carried on along a line through the last two
// answers, exactly integrated, then noise is added back (RES: Zhang et al. 2023, arXiv:2308.02157).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

struct ResOptions {
  EtaOptions noise{.eta = 0};
  void fields(auto&& f) { noise.fields(f); }
  void check() const { noise.check(); }
};

// With `cfg_pp` the state moves by D's guided answer and from it along the one without condition.
Latent res_multistep(Run& run, Latent x, const ResOptions& o, bool cfg_pp);

}  // namespace ebb
