// dpmpp_2m_cfg_pp: dpmpp_2m from the guided prediction along the unconditional ones (CFG++: Chung
// et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const NoOptions&) {
  Latent uncond_before;
  double h_before = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Denoised d = run.denoise_both(x, from);
    // In -ln(sigma) on flow models too, as dpmpp_2m.
    const double h = std::log(from / to);
    x = d.guided + to / from * (x - d.uncond);
    if (i > 0 && to > 0) x -= std::expm1(-h) * h / (2 * h_before) * (d.guided - uncond_before);
    uncond_before = d.uncond;
    h_before = h;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2m_cfg_pp() {
  static const Sampler s = make_sampler<NoOptions>(
      {.name = "dpmpp_2m_cfg_pp", .help = "dpmpp_2m with CFG++", .order = 2, .needs_uncond = true},
      run);
  return s;
}

}  // namespace ebb::samplers
