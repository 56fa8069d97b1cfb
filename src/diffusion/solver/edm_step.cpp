#include "diffusion/solver/edm_step.h"

namespace ebb {

EdmStep::EdmStep(Run& run, Latent& x, int64_t i, const EdmOptions& options)
    : run_(run), path_(find_path(options.path)), i_(i) {
  require(run.space() == Space::ve || path_.name == "linear", "sample: path ", path_.name,
          " is not one of flow models");
  from_ = path_.time(churn(run, x, i, options.churn));
  to_ = path_.time(run.sigma(i + 1));
}

Latent EdmStep::slope(Latent& x, double t) {
  const double sigma = path_.sigma(t), scale = path_.scale(t);
  const double rate = path_.sigma_slope(t) / sigma;
  const Latent denoised = run_.denoise(x, sigma);
  return (rate * scale + path_.scale_slope(t)) * x - scale * rate * denoised;
}

Latent EdmStep::moved(const Latent& x, double t, const Latent& slope) const {
  return (path_.scale(from_) * x + (t - from_) * slope) / path_.scale(t);
}

}  // namespace ebb
