#include "diffusion/solver/formulas.h"

#include <algorithm>

#include "base/names.h"

namespace ebb {
namespace {

AncestralStep ancestral_step_flow(double from, double to, double eta) {
  if (eta == 0 || to == 0) return {to, 1, 0};
  const double down = to * (1 + (to / from - 1) * eta);
  require(down >= 0, "sample: eta (", eta, ") is too large for the step from ", from, " to ", to);
  const double scale = (1 - to) / (1 - down);
  // to^2 - (scale down)^2, where to - scale down is (to - down) / (1 - down).
  const double gap = to * ((from - to) / from) * eta / (1 - down);
  return {down, scale, std::sqrt(std::max(gap * (to + scale * down), 0.0))};
}

}  // namespace

double phi(int k, double z) {
  if (std::abs(z) >= 1) {
    double value = std::expm1(z) / z, below = 1;
    for (int n = 2; n <= k; ++n) {
      value = (value - below) / z;
      below /= n;
    }
    return value;
  }
  // The closed form cancels near 0.
  double factorial = 1;
  for (int n = 2; n < k; ++n) factorial *= n;
  double sum = 0, power = 1;  // z^n / (n + k)!
  for (int n = 0; n < 20; ++n) {
    factorial *= n + k;
    sum += power / factorial;
    power *= z;
  }
  return sum;
}

Latent noise_in(Run& run, Latent& x, double sigma) {
  const Latent denoised = run.denoise(x, sigma);
  return (x - denoised) / sigma;
}

AncestralStep ancestral_step_ve(double from, double to, double eta) {
  if (eta == 0) return {to, 1, 0};
  // (noise / to)^2 = eta^2 (1 - r^2), and 1 less that, so that neither cancels.
  const double r = to / from, left = (1 - eta) * (1 + eta) + eta * eta * r * r;
  if (left <= 0) return {0, 1, to};
  const double fall = std::isfinite(from) ? (from - to) / from : 1;
  return {to * std::sqrt(left), 1, eta * to * std::sqrt(fall * (1 + r))};
}

AncestralStep ancestral_step_ve(const Run& run, double from, double to, double eta) {
  AncestralStep step = ancestral_step_ve(from, to, eta);
  step.draws |= to > 0 && run.dialect().draws_unused_eta;
  return step;
}

AncestralStep ancestral_step(const Run& run, double from, double to, double eta) {
  const Dialect& dialect = run.dialect();
  if (run.space() == Space::ve || !dialect.flow_ancestral)
    return ancestral_step_ve(run, from, to, eta);
  return ancestral_step_flow(from, to, dialect.clamps_eta ? std::min(eta, 1.0) : eta);
}

AncestralStep res_ancestral_step(const Run& run, double from, double to, double eta) {
  return run.dialect().flow_res_ancestral ? ancestral_step(run, from, to, eta)
                                          : ancestral_step_ve(run, from, to, eta);
}

void renoise(Run& run, Latent& x, const AncestralStep& step, double from, double to,
             double s_noise) {
  x *= step.scale;
  if (step.draws) x.add(run.noise(from, to), step.noise * s_noise);
}

void check_flow_noise(const Run& run, std::string_view option, double value) {
  require(value == 0 || run.space() == Space::ve || run.dialect().flow_churn, "sample: ", option,
          " (", value, ") renews noise as if alpha were 1: not on flow models");
}

void check_not_negative(std::string_view option, double value) {
  require(value >= 0 && std::isfinite(value), "sample: ", option, " must not be negative (", value,
          ")");
}

void check_finite(std::string_view option, double value) {
  require(std::isfinite(value), "sample: ", option, " must be finite (", value, ")");
}

void check_choice(std::string_view option, std::string_view value,
                  const std::vector<std::string>& known) {
  check_known(str(option, ": unknown name"), value, known);
}

void ChurnOptions::check() const {
  check_not_negative("s_churn", s_churn);
  check_not_negative("s_noise", s_noise);
  check_finite("s_tmin", s_tmin);
  require(s_tmin <= s_tmax, "sample: s_tmin (", s_tmin, ") must not be above s_tmax (", s_tmax,
          ")");
}

void EtaOptions::check() const {
  check_not_negative("eta", eta);
  check_not_negative("s_noise", s_noise);
}

double churn(Run& run, Latent& x, int64_t i, const ChurnOptions& o, bool draws_unused) {
  check_flow_noise(run, "s_churn", o.s_churn);
  const double sigma = run.sigma(i);
  const bool inside = sigma >= o.s_tmin && sigma <= o.s_tmax;
  const double limit = std::sqrt(2.0) - 1;
  const double gamma = inside ? std::min(o.s_churn / static_cast<double>(run.steps()), limit) : 0;
  if (gamma == 0 && !draws_unused) return sigma;
  const Latent z = run.noise(sigma, run.sigma(i + 1));
  if (gamma == 0) return sigma;
  const double raised = run.round(sigma * (1 + gamma));
  x.add(z, std::sqrt(std::max(raised * raised - sigma * sigma, 0.0)) * o.s_noise);
  return raised;
}

}  // namespace ebb
