// dpmpp_2s_ancestral: D half way in lambda, to below the level; then noise is added back
// (DPM-Solver++(2S), Lu et al. 2022, arXiv:2211.01095, algorithm 1; ancestral as in k-diffusion).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

double middle(const Run& run, double from, double to) {
  const Space space = run.dialect().flow_ancestral ? run.space() : Space::ve;
  // Lambda is infinite at 1.
  constexpr double near = 0.9999;
  if (space == Space::flow && from == 1) return to < near ? near : (1 + to) / 2;
  return sigma_of(space, (lambda_of(space, from) + lambda_of(space, to)) / 2);
}

Latent run(Run& run, Latent x, const EtaOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    AncestralStep step = ancestral_step(run, from, to, o.eta);
    step.draws |= to > 0 && run.space() == Space::ve && run.dialect().draws_unused_ve;
    const bool once =
        from == 1 && run.space() == Space::flow && run.dialect().flow_2s_evaluates_once;
    Latent d = run.denoise(x, from);
    if (step.down > 0 && !once) {
      const double half = middle(run, from, step.down);
      Latent y = d + half / from * (x - d);
      d = run.denoise(y, half);
    }
    x = d + step.down / from * (x - d);
    renoise(run, x, step, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2s_ancestral() {
  static const Sampler s = make_sampler<EtaOptions>({.name = "dpmpp_2s_ancestral",
                                                     .help = "DPM-Solver++(2S), then new noise",
                                                     .kind = SamplerKind::ancestral,
                                                     .order = 2,
                                                     .aliases = {{"dpmpp_2s_a"}}},
                                                    run);
  return s;
}

}  // namespace ebb::samplers
