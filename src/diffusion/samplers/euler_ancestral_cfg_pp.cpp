// euler_ancestral_cfg_pp: steps from the guided answer along the noise that is seen without the
// condition (CFG++: Chung et al. 2024, arXiv:2406.08070). Without new noise it is DDIM with CFG++.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const EtaOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1), alpha = run.alpha(to);
    const Denoised d = run.denoise_both(x, from);
    const Latent noise = (x - run.alpha(from) * d.uncond) / from;
    const bool all = run.alpha(from) == 0 && o.eta > 0 && run.dialect().renews_all_from_1;
    // Levels of x / alpha; flow's first is infinite.
    const AncestralStep step =
        ancestral_step_ve(from / run.alpha(from), to / alpha, all ? 1 : o.eta);
    x = alpha * d.guided + alpha * step.down * noise;
    renoise(run, x, {step.down, 1, alpha * step.noise}, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& euler_ancestral_cfg_pp() {
  static const Sampler s = make_sampler<EtaOptions>({.name = "euler_ancestral_cfg_pp",
                                                     .help = "euler_ancestral with CFG++",
                                                     .kind = SamplerKind::ancestral,
                                                     .order = 1,
                                                     .needs_uncond = true,
                                                     .aliases = {{"euler_a_cfg_pp"},
                                                                 {"euler_cfg_pp", {{"eta", "0"}}},
                                                                 {"ddim_cfg_pp", {{"eta", "0"}}}}},
                                                    run);
  return s;
}

}  // namespace ebb::samplers
