// dpmpp_3m_sde: D carried on through the last three (k-diffusion's DPM-Solver++(3M) SDE). Of order
// 2: its second difference lacks the factor 2 of a second derivative; dpmpp_3m_sde_exact has it.
#include "diffusion/solver/exponential_sde.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& dpmpp_3m_sde() {
  static const Sampler s = make_sampler<EtaOptions>(
      {.name = "dpmpp_3m_sde",
       .help = "DPM-Solver++(3M), stochastic, as in other programs: of order 2",
       .kind = SamplerKind::sde,
       .order = 2,
       .aliases = {{"dpmpp_3m_sde_gpu"}}},
      [](Run& run, Latent x, const EtaOptions& o) { return sde_3m(run, std::move(x), o, 1); });
  return s;
}

}  // namespace ebb::samplers
