// seeds_3: exponential integration of the stochastic equation with three predictions per step
// (SEEDS: Gonzalez et al. 2023, arXiv:2305.14267, algorithm 3).
#include "diffusion/solver/exponential.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  double r_1 = 1.0 / 3, r_2 = 2.0 / 3;
  void fields(auto&& f) {
    noise.fields(f);
    f("r_1", r_1, "where in the step D is evaluated a second time, in lambda");
    f("r_2", r_2, "where in the step D is evaluated a third time");
  }
  void check() const {
    noise.check();
    require(r_1 > 0 && r_1 < r_2 && r_2 <= 1, "seeds_3: 0 < r_1 < r_2 <= 1 (r_1 ", r_1, ", r_2 ",
            r_2, ")");
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> sigmas = run.finite_sigmas();
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const Latent d = run.denoise(x, from);
    if (to == 0) {
      x = d;
      run.done(i, x);
      continue;
    }
    const auto step = [&](double a, double b) {
      return exponential_step(run.space(), a, b, o.noise.eta);
    };
    const double first = level_within(run, from, to, o.r_1);
    const double second = o.r_2 == 1 ? to : level_within(run, from, to, o.r_2);
    SharedNoise noise(run, o.noise);
    Latent y = advance(step(from, first), x, d);
    y += noise.over(from, first);
    const Latent d2 = run.denoise(y, first);
    y = advance(step(from, second), x, {{0, d}, {o.r_1 / o.r_2, d2}});
    y += noise.over(first, second);
    const Latent d3 = run.denoise(y, second);
    x = advance(step(from, to), x, {{0, d}, {o.r_2, d3}});
    x += noise.over(second, to);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& seeds_3() {
  static const Sampler s = make_sampler<Options>({.name = "seeds_3",
                                                  .help = "SEEDS, three predictions a step",
                                                  .kind = SamplerKind::sde,
                                                  .order = 3},
                                                 run);
  return s;
}

}  // namespace ebb::samplers
