// tcd: along the noise found to below the level, then noise to reach it, in timesteps (Zheng et al.
// 2024, arXiv:2402.19159, strategic stochastic sampling; eta is the paper's gamma).
#include <algorithm>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/timesteps.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise = {.eta = 0.3};
  void fields(auto&& f) { noise.fields(f); }
  void check() const {
    noise.check();
    require(noise.eta <= 1, "tcd: eta must not be above 1 (", noise.eta, ")");
  }
};

// From x to the level `below`, then with noise to `reached`, then `scale`.
struct Way {
  double below, reached, scale = 1;
};

Way way(const Run& run, double to, double eta) {
  const std::vector<double>& table = table_of(run);
  const double t = timestep_of(table, to);
  if (!run.dialect().vp_integer_timesteps) {
    if (eta == 0 || to == 0) return {to, to};
    return {std::min(sigma_at(table, (1 - eta) * t), to), to};
  }
  // Timesteps are integers. Noise leads to the requested level; without noise x has the scale of
  // that level.
  const double whole = std::round(t), reached = sigma_at(table, whole);
  const double below = sigma_at(table, std::floor((1 - eta) * whole));
  if (eta > 0 && to > 0) return {below, to};
  return {below, reached, std::hypot(1, to) / std::hypot(1, reached)};
}

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const Way w = way(run, to, o.noise.eta);
    const bool last = i + 1 == run.steps();
    const double s = last ? w.reached : w.below;
    x = denoised + s / from * (x - denoised);
    if (o.noise.eta > 0 && !last)
      x.add(run.noise(from, to),
            std::sqrt(std::max(w.reached * w.reached - s * s, 0.0)) * o.noise.s_noise);
    x *= w.scale;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& tcd() {
  static const Sampler s =
      make_sampler<Options>({.name = "tcd",
                             .help = "to an earlier timestep, then noise, for distilled networks",
                             .kind = SamplerKind::distilled,
                             .order = 0,
                             .flow = false},
                            run);
  return s;
}

}  // namespace ebb::samplers
