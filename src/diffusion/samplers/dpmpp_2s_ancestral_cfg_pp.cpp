// dpmpp_2s_ancestral_cfg_pp: dpmpp_2s_ancestral along the noise that is seen without the condition
// (CFG++: Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const EtaOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Denoised d = run.denoise_both(x, from);
    const AncestralStep step = res_ancestral_step(run, from, to, o.eta);
    if (step.down > 0) {
      // The middle in -ln(sigma), on flow models too.
      const double middle = std::sqrt(from * step.down), keep = step.down / from;
      Latent y = d.guided + middle / from * (x - d.uncond);
      const Denoised later = run.denoise_both(y, middle);
      const Latent& uncond = run.dialect().late_uncond_2s ? later.uncond : d.uncond;
      x = (1 - keep) * later.guided + keep * (x + d.guided - uncond);
    } else {
      x = d.guided;
    }
    renoise(run, x, step, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2s_ancestral_cfg_pp() {
  static const Sampler s = make_sampler<EtaOptions>({.name = "dpmpp_2s_ancestral_cfg_pp",
                                                     .help = "dpmpp_2s_ancestral with CFG++",
                                                     .kind = SamplerKind::ancestral,
                                                     .order = 2,
                                                     .needs_uncond = true,
                                                     .aliases = {{"dpmpp_2s_a_cfg_pp"}}},
                                                    run);
  return s;
}

}  // namespace ebb::samplers
