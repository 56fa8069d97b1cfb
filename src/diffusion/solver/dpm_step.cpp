#include "diffusion/solver/dpm_step.h"

namespace ebb {

const Latent& DpmStep::noise() {
  if (!noises_.contains(0)) noises_[0] = noise_in(run_, x_, sigma(0));
  return noises_[0];
}

const Latent& DpmStep::noise_at(double r) {
  if (!noises_.contains(r)) {
    const Latent start = noise();
    Latent y = x_ - sigma(r) * std::expm1(r * h_) * start;
    noises_[r] = noise_in(run_, y, sigma(r));
  }
  return noises_[r];
}

Latent DpmStep::first() {
  const Latent start = noise();
  return x_ - sigma(1) * std::expm1(h_) * start;
}

Latent DpmStep::second(double r) {
  const double whole = sigma(1) * std::expm1(h_);
  const Latent start = noise();
  return x_ - whole * start - whole / (2 * r) * (noise_at(r) - start);
}

Latent DpmStep::third() {
  const double r1 = 1.0 / 3, r2 = 2.0 / 3;
  const Latent start = noise(), change = noise_at(r1) - start;
  // expm1(z) / z - 1 = z phi(2, z).
  const double bend = sigma(r2) * (r2 / r1) * r2 * h_ * phi(2, r2 * h_);
  Latent y = x_ - sigma(r2) * std::expm1(r2 * h_) * start - bend * change;
  const Latent late = noise_in(run_, y, sigma(r2));
  return x_ - sigma(1) * std::expm1(h_) * start - sigma(1) / r2 * h_ * phi(2, h_) * (late - start);
}

NoisyTarget noisy_target(double from, double to, double end, double eta) {
  if (eta == 0) return {-std::log(to), 0};
  const double t = std::min(end, -std::log(ancestral_step_ve(from, to, eta).down));
  const double reached = std::exp(-t);
  return {t, std::sqrt(std::max(to * to - reached * reached, 0.0))};
}

bool ends_at_once(Run& run, Latent& x) {
  const bool one = run.steps() == 1 && run.sigma(1) == 0;
  if (!one || run.dialect().leaves_single_level) return false;
  x = run.denoise(x, run.sigma(0));
  run.done(0, x);
  return true;
}

double smallest_level(const Run& run) {
  const double last = run.sigmas().back();
  return last > 0 ? last : run.sigma(run.steps() - 1);
}

}  // namespace ebb
