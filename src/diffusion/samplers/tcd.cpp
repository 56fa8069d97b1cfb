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

// The level at (1 - eta) of the timestep of `to`, which is a whole timestep if that of `to` is.
double below(const std::vector<double>& table, double to, double eta) {
  if (eta == 0) return to;
  constexpr double rounding = 1e-6;
  const double t = timestep_of(table, to);
  const bool whole = std::abs(t - std::round(t)) < rounding;
  const double s = whole ? std::floor((1 - eta) * std::round(t) + rounding) : (1 - eta) * t;
  return std::min(sigma_at(table, s), to);
}

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const VpTarget target = vp_target(run, from, to);
    const bool last = i + 1 == run.steps();
    const double s = last ? target.sigma : below(table_of(run), to, o.noise.eta);
    x = denoised + s / from * (x - denoised);
    if (o.noise.eta > 0 && !last)
      x.add(run.noise(from, to), std::sqrt(to * to - s * s) * o.noise.s_noise);
    x *= target.scale;
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
