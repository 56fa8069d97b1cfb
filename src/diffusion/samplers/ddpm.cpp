// ddpm: a draw from the reverse process at every level (Ho et al. 2020, arXiv:2006.11239, algorithm
// 2). With fixed_small it is euler_ancestral with eta 1.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  std::string variance_type = "fixed_small";
  double s_noise = 1;
  void fields(auto&& f) {
    f("variance_type", variance_type,
      "fixed_small: of the posterior, right for data that are one point; fixed_large: beta, right "
      "for normal data of variance 1");
    f("s_noise", s_noise, "standard deviation of new noise");
  }
  void check() const {
    check_choice("ddpm: variance_type", variance_type, {"fixed_small", "fixed_large"});
    check_not_negative("s_noise", s_noise);
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const double a = from * from, b = to * to;
    x = denoised + b / a * (x - denoised);
    // Of the noise in x, so beta = 1 - (1 + b) / (1 + a) grows by 1 + b.
    const double small = b * (a - b) / a, large = (1 + b) * (a - b) / (1 + a);
    const double variance = o.variance_type == "fixed_small" ? small : large;
    if (to > 0) x.add(run.noise(from, to), std::sqrt(variance) * o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& ddpm() {
  static const Sampler s = make_sampler<Options>({.name = "ddpm",
                                                  .help = "a draw from the reverse process",
                                                  .kind = SamplerKind::ancestral,
                                                  .order = 0,
                                                  .flow = false},
                                                 run);
  return s;
}

}  // namespace ebb::samplers
