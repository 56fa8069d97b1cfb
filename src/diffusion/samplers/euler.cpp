// euler: one slope a step; without renewed noise it is DDIM (Song et al. 2021, arXiv:2010.02502).
#include "diffusion/solver/edm_step.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const EdmOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    EdmStep step(run, x, i, o);
    const Latent d = step.slope(x, step.from());
    x = step.moved(x, step.to(), d);
    step.done(x);
  }
  return x;
}

}  // namespace

const Sampler& euler() {
  static const Sampler s =
      make_sampler<EdmOptions>({.name = "euler",
                                .help = "one slope a step",
                                .order = 1,
                                .aliases = {{"edm_euler"}, {"flow_match_euler"}}},
                               run);
  return s;
}

}  // namespace ebb::samplers
