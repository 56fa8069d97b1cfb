// heun: a slope at both ends of a step (Karras et al. 2022, arXiv:2206.00364, algorithms 1 to 3).
#include "diffusion/solver/edm_step.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EdmOptions edm;
  double alpha = 1;
  void fields(auto&& f) {
    edm.fields(f);
    f("alpha", alpha, "where the second slope is taken: 1: at the end of the step, 0.5: half way");
  }
  void check() const {
    edm.check();
    require(alpha > 0 && alpha <= 1, "heun: alpha must lie in (0, 1] (", alpha, ")");
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    EdmStep step(run, x, i, o.edm);
    Latent d = step.slope(x, step.from());
    if (!step.last()) {
      const double t = step.from() + o.alpha * (step.to() - step.from());
      Latent y = step.moved(x, t, d);
      const double share = 1 / (2 * o.alpha);
      d = (1 - share) * d + share * step.slope(y, t);
    }
    x = step.moved(x, step.to(), d);
    step.done(x);
  }
  return x;
}

}  // namespace

const Sampler& heun() {
  static const Sampler s = make_sampler<Options>({.name = "heun",
                                                  .help = "a slope at both ends of a step",
                                                  .order = 2,
                                                  .aliases = {{"flow_match_heun"}}},
                                                 run);
  return s;
}

}  // namespace ebb::samplers
