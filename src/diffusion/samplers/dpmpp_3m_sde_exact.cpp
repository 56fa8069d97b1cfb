// dpmpp_3m_sde_exact: D carried on along the parabola through the last three. dpmpp_3m_sde with the
// weight of a second derivative, of order 3; without noise UniP-3 (Zhao et al. 2023,
// arXiv:2302.04867).
#include "diffusion/solver/exponential_sde.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& dpmpp_3m_sde_exact() {
  static const Sampler s = make_sampler<EtaOptions>(
      {.name = "dpmpp_3m_sde_exact",
       .help = "DPM-Solver++(3M), stochastic, corrected: of order 3",
       .kind = SamplerKind::sde,
       .order = 3},
      [](Run& run, Latent x, const EtaOptions& o) { return sde_3m(run, std::move(x), o, 2); });
  return s;
}

}  // namespace ebb::samplers
