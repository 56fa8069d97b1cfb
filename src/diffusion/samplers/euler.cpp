// euler: one slope a step; on the linear path it is DDIM (Song et al. 2021, arXiv:2010.02502).
#include "diffusion/samplers.h"

namespace ebb::samplers {
namespace {

State run(State x, const SampleCall& call) {
  return for_each_step(std::move(x), call, [](State& x, SamplerStep& step) {
    add_scaled(x, step.to - step.from, step.slope(x, step.from));
  });
}

}  // namespace

const Sampler& euler() {
  static const Sampler s{
      .name = "euler", .help = "first order, one evaluation a step (DDIM)", .run = run};
  return s;
}

}  // namespace ebb::samplers
