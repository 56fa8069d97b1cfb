// res_2s: two predictions a step, linear in between exactly integrated, then noise is added back
// (RES: Zhang et al. 2023, arXiv:2308.02157).
#include "diffusion/solver/exponential.h"
#include "diffusion/solver/res_multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const ResOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const AncestralStep step = ancestral_step(run, from, to, o.noise.eta);
    const Latent d = run.denoise(x, from);
    if (step.down > 0) {
      // In -ln(sigma) on flow models too.
      const double middle = std::sqrt(from * step.down);
      Latent y = advance(exponential_step(Space::ve, from, middle, 0), x, d);
      const Latent d2 = run.denoise(y, middle);
      x = advance(exponential_step(Space::ve, from, step.down, 0), x, {{0, d}, {0.5, d2}});
    } else {
      x = d;
    }
    renoise(run, x, step, from, to, o.noise.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& res_2s() {
  static const Sampler s =
      make_sampler<ResOptions>({.name = "res_2s",
                                .help = "two predictions a step, linear in between",
                                .kind = SamplerKind::ancestral,
                                .order = 2},
                               run);
  return s;
}

}  // namespace ebb::samplers
