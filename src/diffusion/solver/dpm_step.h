// DpmStep: one step of DPM-Solver (Lu et al. 2022, arXiv:2206.00927) on the predicted noise in x,
// in t = -ln(sigma). Steps of several orders share their evaluations.
#pragma once

#include <map>

#include "diffusion/solver/formulas.h"

namespace ebb {

class DpmStep {
 public:
  // From x at `t`, to `end`: evaluations lie at fractions of the step.
  DpmStep(Run& run, Latent& x, double t, double end) : run_(run), x_(x), t_(t), h_(end - t) {}

  Latent first();                 // DPM-Solver-1, at `end`
  Latent second(double r = 0.5);  // DPM-Solver-2
  Latent third();                 // DPM-Solver-3, at 1/3 and 2/3

 private:
  const Latent& noise();             // in x
  const Latent& noise_at(double r);  // after a fraction r of the step, by a first-order step
  double sigma(double r) const { return std::exp(-(t_ + r * h_)); }

  Run& run_;
  Latent& x_;
  double t_, h_;
  std::map<double, Latent> noises_;  // by fraction
};

// The target of a step with noise: to t, then `noise` is added. (k-diffusion's DPM-Solver.)
struct NoisyTarget {
  double t = 0, noise = 0;
};
// Between two levels; no further than t = `end`.
NoisyTarget noisy_target(double from, double to, double end, double eta);

// The smallest level above 0.
double smallest_level(const Run& run);

// Only one level is above 0: there is no step in ln(sigma). Unless the dialect leaves x as it is,
// one evaluation ends the run, and true is returned.
bool ends_at_once(Run& run, Latent& x);

}  // namespace ebb
