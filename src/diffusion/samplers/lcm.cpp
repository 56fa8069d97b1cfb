// lcm: D, then new noise, for consistency-distilled networks (Song et al. 2023, arXiv:2303.01469,
// algorithm 1; Luo et al. 2023, arXiv:2310.04378).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/timesteps.h"

namespace ebb::samplers {
namespace {

struct Options {
  double s_noise = 1, s_noise_end = 1, noise_clip_std = 0;
  void fields(auto&& f) {
    f("s_noise", s_noise, "standard deviation of new noise in the first step");
    f("s_noise_end", s_noise_end, "and in the last, changing evenly");
    f("noise_clip_std", noise_clip_std, "noise is clipped to so many deviations; 0: it is not");
  }
  void check() const {
    check_not_negative("s_noise", s_noise);
    check_not_negative("s_noise_end", s_noise_end);
    check_not_negative("noise_clip_std", noise_clip_std);
  }
};

// A consistency function of timestep t: the network's prediction, blended with x towards timestep
// 0, where it must be x itself (Luo et al. 2023, equation 9).
Latent bounded(const Run& run, const Latent& x, const Latent& denoised, double sigma) {
  const int64_t apart = run.dialect().lcm_timesteps_apart;
  const double t = 10 * (apart > 0 ? nearest_timestep(table_of(run), sigma, apart)
                                   : timestep_of(table_of(run), sigma));
  constexpr double deviation = 0.5;
  const double norm = t * t + deviation * deviation;
  return t / std::sqrt(norm) * denoised +
         deviation * deviation / norm / (apart > 0 ? 1 : vp_norm(sigma)) * x;
}

Latent run(Run& run, Latent x, const Options& o) {
  const bool bound = run.dialect().lcm_boundary && run.space() == Space::ve;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    x = bound ? bounded(run, x, denoised, from) : denoised;
    if (to > 0) {
      const double share =
          run.steps() == 1 ? 0 : static_cast<double>(i) / static_cast<double>(run.steps() - 1);
      const double s_noise = o.s_noise + share * (o.s_noise_end - o.s_noise);
      x *= run.alpha(to);
      x.add(run.noise(from, to, o.noise_clip_std), to * s_noise);
    } else if (run.dialect().draws_unused_last && !bound) {
      run.noise(from, to);
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& lcm() {
  static const Sampler s =
      make_sampler<Options>({.name = "lcm",
                             .help = "D, then new noise, for consistency-distilled networks",
                             .kind = SamplerKind::distilled,
                             .order = 0,
                             .aliases = {{"flow_match_lcm"}, {"flow_match_euler_stochastic"}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
