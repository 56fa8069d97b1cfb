// Precond: how a denoiser is made of a network, D(x, sigma) = c_skip x + c_out F(c_in x, c_noise),
// where x = data + sigma noise (Karras et al. 2022, arXiv:2206.00364, table 1). The one place of
// these formulas: training evaluates them in the graph, sampling in double on the host.
//
//          c_skip               c_out                  c_in              c_noise
//   edm    d^2 / (s^2 + d^2)    s d / sqrt(s^2 + d^2)  1 / sqrt(s^2+d^2) noise_scale ln s
//   vp     1                    -s                     1 / sqrt(s^2+1)   999 t(s)
//   ve     1                    s                      1                 ln(s / 2)
//   eps    1                    -s                     1 / sqrt(s^2+1)   timestep
//   iddpm  1                    -s                     1 / sqrt(s^2+1)   timestep, a whole one
//   v      1 / (s^2 + 1)        -s / sqrt(s^2 + 1)     1 / sqrt(s^2+1)   timestep
#pragma once

#include <optional>
#include <vector>

#include "diffusion/beta_table.h"
#include "diffusion/config.h"
#include "diffusion/solver/vp.h"
#include "ir/expr.h"

namespace ebb {

// Formulas of sigma. c_noise of discrete ones is none.
struct PrecondFormulas {
  Scalar skip, out, in;
  Scalar rest;  // 1 - skip, without cancellation
  std::optional<Scalar> noise;
};

struct PrecondNumbers {
  double skip = 0, out = 0, in = 0, noise = 0;
};

class Precond {
 public:
  explicit Precond(const DiffusionConfig& config);  // throws Error as check()

  const DiffusionConfig& config() const { return config_; }
  PrecondFormulas formulas(const Scalar& sigma) const;
  PrecondNumbers at(double sigma) const;

  // The noise levels the network was trained for: the ends of sampling lie between them.
  double sigma_min() const;
  double sigma_max() const;
  // The level the network means when it is asked for `sigma`: the nearest of iddpm's; of the others
  // sigma itself.
  double round_sigma(double sigma) const;

  // Of discrete ones; else empty. `table().sigma` rises with the timestep.
  const BetaTable& table() const { return table_; }
  // The timestep with this sigma, with a fraction: linear in ln(sigma) between timesteps; within
  // the table. Discrete ones only.
  double timestep_of(double sigma) const;

 private:
  DiffusionConfig config_;
  BetaTable table_;
  Expr expr_;  // skip, out, in, noise (0 of discrete ones)
};

// exp(x) - 1 without cancellation near 0, and ln(1 + x): what vp.h needs of expressions.
inline Scalar expm1(const Scalar& x) { return tanh(x * 0.5) * (exp(x) + 1.0); }
inline Scalar log1p(const Scalar& x) { return log(x + 1.0); }

// Ranges of the published VP and VE models.
inline constexpr double vp_smallest_time = 1e-5;  // in training
inline constexpr double vp_time_scale = 999;      // c_noise of t = 1
inline constexpr double ve_sigma_min = 0.02, ve_sigma_max = 100;

}  // namespace ebb
