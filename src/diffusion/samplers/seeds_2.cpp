// seeds_2: exponential integration of the stochastic equation with two predictions per step (SEEDS:
// Gonzalez et al. 2023, arXiv:2305.14267). With the second evaluation at the end of the step it is
// exponential Heun.
#include "diffusion/solver/exponential.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  double r = 0.5;
  std::string solver_type = "phi_1";
  void fields(auto&& f) {
    noise.fields(f);
    f("r", r, "where in the step D is evaluated again, in lambda");
    f("solver_type", solver_type, "phi_1, or phi_2: a line of D exactly integrated");
  }
  void check() const {
    noise.check();
    require(r > 0 && r <= 1, "seeds_2: r must lie in (0, 1] (", r, ")");
    check_choice("seeds_2: solver_type", solver_type, {"phi_1", "phi_2"});
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> sigmas = run.finite_sigmas();
  const SlopeRule rule = o.solver_type == "phi_1" ? SlopeRule::expm1 : SlopeRule::exact;
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
    const double middle = o.r == 1 ? to : level_within(run, from, to, o.r);
    SharedNoise noise(run, o.noise);
    Latent y = advance(step(from, middle), x, d);
    y += noise.over(from, middle);
    const Latent d2 = run.denoise(y, middle);
    x = advance(step(from, to), x, {{0, d}, {o.r, d2}}, rule);
    x += noise.over(middle, to);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& seeds_2() {
  static const Sampler s = make_sampler<Options>(
      {.name = "seeds_2",
       .help = "SEEDS, two predictions a step",
       .kind = SamplerKind::sde,
       .order = 2,
       .aliases = {{.name = "exp_heun_2_x0",
                    .options = {{"r", "1"}, {"solver_type", "phi_2"}, {"eta", "0"}},
                    .kind = SamplerKind::ode,
                    .help = "exponential Heun"},
                   {.name = "exp_heun_2_x0_sde",
                    .options = {{"r", "1"}, {"solver_type", "phi_2"}},
                    .help = "exponential Heun, stochastic"}}},
      run);
  return s;
}

}  // namespace ebb::samplers
