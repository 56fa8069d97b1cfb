// Precond: how a denoiser is made of the network of a config, D(x, sigma) = c_skip x + c_out F(c_in
// x, c_noise) for x = alpha(sigma) data + sigma noise. Training evaluates the formulas of
// levels/prediction.h in the graph, sampling in double on the host.
//
//   config   prediction   levels                               c_noise
//   edm      edm          any                                  noise_scale ln s
//   vp, ve   eps, ve      of the continuous processes          999 t(s), ln(s / 2)
//   eps, v, x0            a table of betas                     timestep
//   iddpm    eps          the cosine table's, no others        timestep, a whole one
//   flow     flow         [0, 1], alpha = 1 - s                time_scale s
#pragma once

#include <optional>
#include <vector>

#include "diffusion/config.h"
#include "diffusion/levels/discretisation.h"
#include "ir/expr.h"

namespace ebb {

// Expressions of sigma. c_noise of discrete networks is none.
struct PrecondExpressions {
  Scalar skip, out, in;
  Scalar rest;  // 1 - skip alpha, without cancellation
  std::optional<Scalar> noise;
};

struct PrecondNumbers {
  double skip = 0, out = 0, in = 0, noise = 0;
};

class Precond {
 public:
  explicit Precond(const DiffusionConfig& config);  // throws Error as check()

  const DiffusionConfig& config() const { return config_; }
  Prediction prediction() const { return prediction_; }
  PrecondExpressions expressions(const Scalar& sigma) const;
  // `apart`: Discretisation::c_noise_of's, of discrete networks.
  PrecondNumbers at(double sigma, int64_t apart = 0) const;

  // The noise levels the network was trained for: the ends of sampling lie between them.
  const Discretisation& levels() const { return levels_; }
  double sigma_min() const { return levels_.lowest; }
  double sigma_max() const { return levels_.highest; }
  // The level that the network uses for `sigma`: the nearest of iddpm's; for others sigma itself.
  double round_sigma(double sigma) const { return levels_.round(sigma); }

  // Of discrete networks; else empty. `table().sigma` rises with the timestep.
  const BetaTable& table() const { return table_; }
  // The timestep with this sigma, with a fraction: linear in ln(sigma) between timesteps; within
  // the table. Discrete networks only.
  double timestep_of(double sigma) const;

 private:
  DiffusionConfig config_;
  Prediction prediction_;
  BetaTable table_;
  Discretisation levels_;
  Expr expr_;  // skip, out, in, noise (0 of discrete ones)
};

// exp(x) - 1 without cancellation near 0, and ln(1 + x): what vp.h needs of expressions.
inline Scalar expm1(const Scalar& x) { return tanh(x * 0.5) * (exp(x) + 1.0); }
inline Scalar log1p(const Scalar& x) { return log(x + 1.0); }

// The schedule of the published network: karras, vp, ve, iddpm, normal or flow.
std::string default_schedule(const DiffusionConfig& config);

}  // namespace ebb
