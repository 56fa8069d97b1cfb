// ipndm: slopes of the last steps with the weights of equal steps, however long they are (Zhang and
// Chen 2022, arXiv:2204.13902, "improved PNDM"; the first steps have lower order).
#include <algorithm>

#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t max_order = 4;
  void fields(auto&& f) { f("max_order", max_order, "how many slopes count, 1 to 4"); }
  void check() const {
    require(max_order >= 1 && max_order <= 4, "ipndm: max_order must be 1 to 4 (", max_order, ")");
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  History slopes(o.max_order);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    slopes.push((x - denoised) / from);
    if (to == 0 && !run.dialect().multistep_to_zero)
      x = denoised;
    else
      x += (to - from) * slopes.sum(adams_bashforth(slopes.size()));
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& ipndm() {
  static const Sampler s = make_sampler<Options>(
      {.name = "ipndm", .help = "slopes of four steps with the weights of equal steps", .order = 2},
      run);
  return s;
}

}  // namespace ebb::samplers
