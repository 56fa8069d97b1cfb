// Shared by euler_cfg_pp and euler_ancestral_cfg_pp: a step from the guided prediction along the
// unconditionally predicted noise (CFG++: Chung et al. 2024, arXiv:2406.08070).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

// All steps. `ancestral`: a fraction eta of the noise is renewed.
Latent euler_cfg_pp(Run& run, Latent x, const EtaOptions& o, bool ancestral);

}  // namespace ebb
