// gradient_estimation: Euler with a slope extrapolated from the last two (Permenter and Yuan 2023,
// arXiv:2306.04848).
#include "diffusion/solver/gradient_estimation.h"

#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  GradientOptions gradient;
  EtaOptions noise = {.eta = 0};
  void fields(auto&& f) {
    gradient.fields(f);
    noise.fields(f);
  }
  void check() const {
    gradient.check();
    noise.check();
  }
};

}  // namespace

const Sampler& gradient_estimation() {
  static const Sampler s =
      make_sampler<Options>({.name = "gradient_estimation",
                             .help = "Euler with a slope extrapolated from the last two",
                             .kind = SamplerKind::ancestral,
                             .order = 1,
                             .aliases = {{"euler_ge"}}},
                            [](Run& run, Latent x, const Options& o) {
                              return gradient_estimation(run, x, o.gradient, o.noise, false);
                            });
  return s;
}

}  // namespace ebb::samplers
