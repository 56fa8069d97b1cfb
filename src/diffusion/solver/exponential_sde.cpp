#include "diffusion/solver/exponential_sde.h"

namespace ebb {

SdeStep::SdeStep(Run& run, int64_t i, const EtaOptions& options)
    : run_(run), o_(options), space_(sde_space(run)) {
  from_ = space_ == Space::flow ? run.finite_sigmas()[static_cast<size_t>(i)] : run.sigma(i);
  to_ = run.sigma(i + 1);
  h_ = lambda_of(space_, to_) - lambda_of(space_, from_);
}

Latent SdeStep::held(const Latent& x, const Latent& d) const {
  return to_ / from_ * std::exp(-h_ * o_.eta) * x - alpha() * std::expm1(-H()) * d;
}

void SdeStep::renoise(Latent& x) const {
  if (o_.eta == 0) return;
  const double deviation = to_ * std::sqrt(-std::expm1(-2 * h_ * o_.eta));
  x.add(run_.noise(from_, to_), deviation * o_.s_noise);
}

Latent sde_3m(Run& run, Latent x, const EtaOptions& o, double bend) {
  Latent d1, d2;  // the previous predictions
  double h1 = 0, h2 = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const SdeStep step(run, i, o);
    const Latent d = run.denoise(x, step.from());
    if (step.last()) {
      x = d;
    } else {
      x = step.held(x, d);
      const double H = step.H(), h = step.h();
      const double slope = step.alpha() * H * phi(2, -H), curve = step.alpha() * H * phi(3, -H);
      // Differences of D in steps of h.
      if (i == 1) x.add(d - d1, slope * h / h1);
      if (i > 1) {
        const Latent near = (d - d1) * (h / h1), far = (d1 - d2) * (h / h2);
        const Latent change = (near - far) * (h / (h1 + h2));
        x.add(near + h1 / h * change, slope);
        x.add(change, bend * curve);
      }
      step.renoise(x);
    }
    d2 = d1;
    d1 = d;
    h2 = h1;
    h1 = step.h();
    run.done(i, x);
  }
  return x;
}

}  // namespace ebb
