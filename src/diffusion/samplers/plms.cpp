// plms: noise found in the last steps with the weights of equal steps, which those in timesteps
// are (Liu et al. 2022, arXiv:2202.09778, PNDM). It starts up with two evaluations in the first
// step, or with three steps of Runge and Kutta.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/timesteps.h"

namespace ebb::samplers {
namespace {

struct Options {
  bool runge_kutta = false;
  void fields(auto&& f) {
    f("runge_kutta", runge_kutta, "four evaluations in each of the first three steps");
  }
};

// The level of the midpoint timestep.
double middle_of(const Run& run, double from, double to) {
  const std::vector<double>& table = table_of(run);
  const double m = sigma_at(table, (timestep_of(table, from) + timestep_of(table, to)) / 2);
  return m > to && m < from ? m : std::sqrt(from * to);
}

// The noise to follow over the step, by the classical method of order four. `e` is that at x.
Latent runge_kutta(Run& run, const Latent& x, const Latent& e, double from, double to) {
  const double middle = middle_of(run, from, to);
  Latent y = x + (middle - from) * e;
  const Latent second = noise_in(run, y, middle);
  y = x + (middle - from) * second;
  const Latent third = noise_in(run, y, middle);
  y = x + (to - from) * third;
  return (e + 2 * second + 2 * third + noise_in(run, y, to)) / 6;
}

Latent run(Run& run, Latent x, const Options& o) {
  History found(4);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const VpTarget target = vp_target(run, from, to);
    found.push(noise_in(run, x, from));
    Latent e = found[0];
    if (to == 0 && !run.dialect().multistep_to_zero) {
      // Straight to D.
    } else if (o.runge_kutta && i < 3 && to > 0) {
      e = runge_kutta(run, x, e, from, to);
    } else if (i == 0 && to > 0) {
      Latent y = x + (to - from) * e;
      e = (e + noise_in(run, y, to)) / 2;
    } else {
      e = found.sum(adams_bashforth(found.size()));
    }
    x += (target.sigma - from) * e;
    x *= target.scale;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& plms() {
  static const Sampler s =
      make_sampler<Options>({.name = "plms",
                             .help = "predicted noise of four steps, equal in timesteps",
                             .order = 2,
                             .flow = false,
                             .aliases = {{"pndm", {{"runge_kutta", "true"}}}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
