// dpmpp_sde: two evaluations a step, with noise for the first part and for the whole of it
// (k-diffusion's DPM-Solver++ (stochastic); on flow models with their alpha).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  double r = 0.5;
  void fields(auto&& f) {
    noise.fields(f);
    f("r", r, "where in the step D is evaluated again, in lambda");
  }
  void check() const {
    noise.check();
    require(r > 0 && r <= 1, "dpmpp_sde: r must lie in (0, 1] (", r, ")");
  }
};

// From x at `from` to `to` with constant D = `d`.
Latent advance(Run& run, const Latent& x, const Latent& d, double from, double to,
               const EtaOptions& o) {
  const Space space = sde_space(run);
  const double alpha = alpha_of(space, to);
  // Levels of x / alpha.
  const double a = from / alpha_of(space, from), b = to / alpha;
  const AncestralStep step = ancestral_step_ve(a, b, o.eta);
  const double keep = step.down / a;
  Latent y = alpha / alpha_of(space, from) * keep * x + alpha * (1 - keep) * d;
  if (step.draws || run.dialect().draws_unused_sde)
    y.add(run.noise(from, to), alpha * step.noise * o.s_noise);
  return y;
}

Latent run(Run& run, Latent x, const Options& o) {
  const Space space = sde_space(run);
  const std::vector<double> sigmas = space == Space::ve ? run.sigmas() : run.finite_sigmas();
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    Latent d = run.denoise(x, from);
    if (to > 0) {
      const double start = lambda_of(space, from), h = lambda_of(space, to) - start;
      const double middle = sigma_of(space, start + o.r * h);
      Latent y = advance(run, x, d, from, middle, o.noise);
      const double share = 1 / (2 * o.r);
      d = (1 - share) * d + share * run.denoise(y, middle);
      x = advance(run, x, d, from, to, o.noise);
    } else {
      x = d;
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_sde() {
  static const Sampler s =
      make_sampler<Options>({.name = "dpmpp_sde",
                             .help = "DPM-Solver++, stochastic, single step",
                             .kind = SamplerKind::sde,
                             .order = 2,
                             .aliases = {{"dpmpp_sde_gpu"}, {"dpm_solver_sde"}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
