// SdeStep: a step of the stochastic equation in lambda with D constant or extrapolated
// (SDE-DPM-Solver++, Lu et al. 2022, arXiv:2211.01095; eta 1: the reverse equation, 0: the
// probability flow).
#pragma once

#include "diffusion/solver/formulas.h"

namespace ebb {

class SdeStep {
 public:
  // Step `i`.
  SdeStep(Run& run, int64_t i, const EtaOptions& options);

  double from() const { return from_; }  // a level with a finite lambda
  bool last() const { return to_ == 0; }
  double h() const { return h_; }                         // in lambda
  double H() const { return h_ * (1 + o_.eta); }          // including the noise
  double alpha() const { return alpha_of(space_, to_); }  // at the end
  // x at the end with constant D = `d`.
  Latent held(const Latent& x, const Latent& d) const;
  void renoise(Latent& x) const;

 private:
  Run& run_;
  const EtaOptions& o_;
  Space space_;
  double from_, to_, h_;
};

// Multistep through the last three predictions; `bend` scales the second difference: 2 makes it a
// second derivative.
Latent sde_3m(Run& run, Latent x, const EtaOptions& options, double bend);

}  // namespace ebb
