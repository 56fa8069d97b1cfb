// What euler_cfg_pp and euler_ancestral_cfg_pp share: a step from the guided answer along the noise
// that is seen without the condition (CFG++: Chung et al. 2024, arXiv:2406.08070).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

// All steps. `ancestral`: a share eta of the noise is renewed.
Latent euler_cfg_pp(Run& run, Latent x, const EtaOptions& o, bool ancestral);

}  // namespace ebb
