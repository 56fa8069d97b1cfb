// ddim: a step to the next level along the predicted noise, a fraction of it renewed (Song et al.
// 2021, arXiv:2010.02502, equation 12).
#include "diffusion/solver/ddim.h"

#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& ddim() {
  static const Sampler s = make_sampler<DdimOptions>(
      {.name = "ddim",
       .help = "along the predicted noise, a fraction of it renewed",
       .kind = SamplerKind::ancestral,
       .order = 1,
       .flow = false},
      [](Run& run, Latent x, const DdimOptions& o) { return ddim(run, x, o, false); });
  return s;
}

}  // namespace ebb::samplers
