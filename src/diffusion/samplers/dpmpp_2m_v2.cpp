// dpmpp_2m_v2: dpmpp_2m with the mean of this step and the last one in the place of this one
// (stable-diffusion.cpp). Equal to it on equal steps in ln(sigma), of order 1 on others.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const NoOptions&) {
  Latent before;
  double h_before = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const double h = std::log(from / to);
    if (i > 0 && to > 0) {
      const double ratio = std::max(h, h_before) / std::min(h, h_before);
      const Latent d = denoised + (denoised - before) / (2 * ratio);
      x = to / from * x - std::expm1(-(h + h_before) / 2) * d;
    } else {
      x = denoised + to / from * (x - denoised);
    }
    before = denoised;
    h_before = h;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2m_v2() {
  static const Sampler s = make_sampler<NoOptions>(
      {
          .name = "dpmpp_2m_v2",
          .help = "dpmpp_2m with averaged steps; of order 1 on unequal ones",
          .order = 1,
      },
      run);
  return s;
}

}  // namespace ebb::samplers
