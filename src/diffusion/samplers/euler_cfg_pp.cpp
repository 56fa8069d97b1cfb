// euler_cfg_pp: steps from the guided prediction along the unconditionally predicted noise (CFG++:
// Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/euler_cfg_pp.h"

#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& euler_cfg_pp() {
  static const Sampler s = make_sampler<NoOptions>(
      {.name = "euler_cfg_pp", .help = "Euler with CFG++", .order = 1, .needs_uncond = true},
      [](Run& run, Latent x, const NoOptions&) { return euler_cfg_pp(run, x, {}, false); });
  return s;
}

}  // namespace ebb::samplers
