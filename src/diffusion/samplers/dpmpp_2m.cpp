// dpmpp_2m: DPM-Solver++(2M), D carried on along a line through the last two (Lu et al. 2022,
// arXiv:2211.01095, algorithm 2).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const NoOptions&) {
  const Space space = run.dialect().flow_lambda_2m ? run.space() : Space::ve;
  const std::vector<double> sigmas = space == Space::ve ? run.sigmas() : run.finite_sigmas();
  Latent before;
  double h_before = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const double h = lambda_of(space, to) - lambda_of(space, from);
    Latent d = denoised;
    if (i > 0 && to > 0) d += h / (2 * h_before) * (denoised - before);
    x = to / from * x - alpha_of(space, to) * std::expm1(-h) * d;
    before = denoised;
    h_before = h;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2m() {
  static const Sampler s =
      make_sampler<NoOptions>({.name = "dpmpp_2m", .help = "DPM-Solver++(2M)", .order = 2}, run);
  return s;
}

}  // namespace ebb::samplers
