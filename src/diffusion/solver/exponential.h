// Exponential integrators: steps in lambda that are exact for the linear part of the equation, with
// D a polynomial through the known predictions (Hochbruck and Ostermann 2010; Lu et al. 2022,
// arXiv:2211.01095; Gonzalez et al. 2023, SEEDS, arXiv:2305.14267).
#pragma once

#include <vector>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/multistep.h"

namespace ebb {

// From one level to another, with noise renewed at the rate `eta` (0: none): x = keep x + alpha
// sum(weights D) + noise z, where the weights depend on z_length.
struct ExponentialStep {
  double h = 0;         // lambda gained
  double z_length = 0;  // (1 + eta) h
  double keep = 1, alpha = 1, noise = 0;
};
// Both levels need a finite lambda. Space::ve is for every model whose D is extrapolated in
// -ln(sigma).
ExponentialStep exponential_step(Space space, double from, double to, double eta);

// The same with the predicted noise, (x - alpha D) / sigma, in D's place: exact if that is
// constant.
ExponentialStep noise_step(Space space, double from, double to, double eta);
// What such steps interpolate: D, or that noise.
inline Latent predicted(const Run& run, const Latent& x, const Latent& denoised, double sigma,
                        bool x0) {
  return x0 ? denoised : (x - run.alpha(sigma) * denoised) / sigma;
}

// The level whose lambda lies a fraction `r` of the way from one level's to another's.
double level_within(const Run& run, double from, double to, double r);

// Weights for two predictions of the denoiser. `exact`: the integral of the line; `linear` and
// `expm1`: simplified, the slope's weight is z / 2 or (1 - exp(-z)) / 2 (UniPC's B1 and B2).
// `slipped` is exact for two; with more, the newest prediction gets the highest power's integral at
// the coefficient of the power below, and the others' highest power is dropped.
enum class SlopeRule { exact, linear, expm1, slipped };

// A prediction of the denoiser at a level whose lambda is `at` steps beyond the step's start.
struct KnownPrediction {
  double at = 0;
  Latent denoised;
};

// The predictions used in the step from level `step`, the newest of them at level `newest`.
struct StepPredictions {
  int64_t step = 0, newest = 0, count = 0;
};
// The newest predictions, positions in steps of lambda; for the rule of two, the one at the step's
// start comes first.
std::vector<KnownPrediction> placed(const Run& run, const std::vector<double>& sigmas,
                                    const History& predictions, const StepPredictions& which);

// Weights of predictions at `nodes` over a step of length z: sum w p(node) = integral of z exp(-z
// (1 - u)) p(u) for u from 0 to 1, for every polynomial p that the nodes determine. `rule` needs a
// first node of 0; linear and expm1 are for two nodes.
std::vector<double> exponential_weights(const std::vector<double>& nodes, double z,
                                        SlopeRule rule = SlopeRule::exact);

// x after the step, without noise.
Latent advance(const ExponentialStep& step, const Latent& x,
               const std::vector<KnownPrediction>& predictions, SlopeRule rule = SlopeRule::exact);
inline Latent advance(const ExponentialStep& step, const Latent& x, const Latent& denoised) {
  return step.keep * x + step.alpha * -std::expm1(-step.z_length) * denoised;
}

// Noise of the substeps of a step: a later state contains the noise of earlier ones, attenuated
// (SEEDS).
class SharedNoise {
 public:
  SharedNoise(Run& run, const EtaOptions& o) : run_(run), o_(o) {}
  // The noise in the state at `to`, if that at `from` was drawn before.
  Latent over(double from, double to);

 private:
  Run& run_;
  const EtaOptions& o_;
  Latent noise_;
};

}  // namespace ebb
