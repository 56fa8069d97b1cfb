// heun: the mean of the slopes at both ends of a step (Karras et al. 2022, arXiv:2206.00364,
// algorithms 1 and 2).
#include "diffusion/samplers.h"

namespace ebb::samplers {
namespace {

State run(State x, const SampleCall& call) {
  return for_each_step(std::move(x), call, [](State& x, SamplerStep& step) {
    const double h = step.to - step.from;
    const State d = step.slope(x, step.from);
    if (step.last) return add_scaled(x, h, d);  // there is no slope at noise level 0
    State y = x;
    add_scaled(y, h, d);
    add_scaled(x, h / 2, d);
    add_scaled(x, h / 2, step.slope(y, step.to));
  });
}

}  // namespace

const Sampler& heun() {
  static const Sampler s{.name = "heun",
                         .help = "second order, two evaluations a step (EDM)",
                         .order = 2,
                         .evaluations = 2,
                         .run = run};
  return s;
}

}  // namespace ebb::samplers
