#include "diffusion/solver/exponential.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ebb {

ExponentialStep exponential_step(Space space, double from, double to, double eta) {
  ExponentialStep s;
  s.h = lambda_of(space, to) - lambda_of(space, from);
  s.z_length = (1 + eta) * s.h;
  s.alpha = alpha_of(space, to);
  s.keep = to / from * std::exp(-eta * s.h);
  s.noise = to * std::sqrt(std::max(-std::expm1(-2 * eta * s.h), 0.0));
  return s;
}

ExponentialStep noise_step(Space space, double from, double to, double eta) {
  ExponentialStep s;
  s.h = lambda_of(space, to) - lambda_of(space, from);
  s.z_length = -s.h;
  s.alpha = (1 + eta) * to;
  s.keep = alpha_of(space, to) / alpha_of(space, from);
  s.noise = to * std::sqrt(std::max(eta * std::expm1(2 * s.h), 0.0));
  return s;
}

double level_within(const Run& run, double from, double to, double r) {
  return run.sigma_of(run.lambda(from) + r * (run.lambda(to) - run.lambda(from)));
}

namespace {

// Integrals of z exp(-z (1 - u)) u^p = z p! phi_{p+1}(-z).
std::vector<double> exponential_moments(size_t count, double z) {
  std::vector<double> moments = {-std::expm1(-z)};
  double factorial = 1;
  for (int p = 1; p < static_cast<int>(count); ++p) {
    factorial *= p;
    moments.push_back(z * factorial * phi(p + 1, -z));
  }
  return moments;
}

std::vector<double> slipped_weights(const std::vector<double>& nodes, double z) {
  const size_t top = nodes.size() - 1;
  std::vector<double> moments = exponential_moments(nodes.size(), z), below(nodes.size());
  const double highest = std::exchange(moments[top], 0);
  below[top - 1] = highest / static_cast<double>(top);
  std::vector<double> w = polynomial_weights(nodes, moments);
  const double change = polynomial_weights(nodes, below)[top] - w[top];
  w[top] += change;
  w[0] -= change;
  return w;
}

}  // namespace

std::vector<double> exponential_weights(const std::vector<double>& nodes, double z,
                                        SlopeRule rule) {
  if (rule == SlopeRule::slipped && nodes.size() > 2) return slipped_weights(nodes, z);
  const std::vector<double> moments = exponential_moments(nodes.size(), z);
  const bool simple = rule == SlopeRule::linear || rule == SlopeRule::expm1;
  if (!simple || nodes.size() != 2) return polynomial_weights(nodes, moments);
  const double slope = (rule == SlopeRule::linear ? z : moments[0]) / (2 * nodes[1]);
  return {moments[0] - slope, slope};
}

std::vector<KnownPrediction> placed(const Run& run, const std::vector<double>& sigmas,
                                    const History& predictions, const StepPredictions& which) {
  const auto lambda = [&](int64_t k) { return run.lambda(sigmas[static_cast<size_t>(k)]); };
  const double start = lambda(which.step), h = lambda(which.step + 1) - start;
  std::vector<KnownPrediction> out;
  for (int64_t k = 0; k < which.count; ++k)
    out.push_back({(lambda(which.newest - k) - start) / h, predictions[k]});
  if (which.newest > which.step && which.count == 2) std::swap(out[0], out[1]);
  return out;
}

Latent advance(const ExponentialStep& step, const Latent& x,
               const std::vector<KnownPrediction>& predictions, SlopeRule rule) {
  std::vector<double> nodes;
  for (const KnownPrediction& a : predictions) nodes.push_back(a.at);
  const std::vector<double> w = exponential_weights(nodes, step.z_length, rule);
  Latent y = step.keep * x;
  for (size_t k = 0; k < w.size(); ++k) y.add(predictions[k].denoised, step.alpha * w[k]);
  return y;
}

Latent SharedNoise::over(double from, double to) {
  const ExponentialStep step = exponential_step(run_.space(), from, to, o_.eta);
  noise_ *= step.keep;
  if (step.noise > 0 || (o_.eta > 0 && run_.dialect().draws_unused_substeps))
    noise_.add(run_.noise(from, to), step.noise * o_.s_noise);
  return noise_;
}

}  // namespace ebb
