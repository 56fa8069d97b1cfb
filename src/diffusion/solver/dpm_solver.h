// DPM-Solver (Lu et al. 2022, arXiv:2206.00927) and DPM-Solver++ (arXiv:2211.01095): what their
// multistep and singlestep samplers share. With y = x / alpha, rho = sigma / alpha and h = ln(rho /
// rho'), D or the noise in x is taken as a polynomial in lambda over the step:
//   dpmsolver++      y' = e^-h y + h (phi1(-h) D + phi2(-h) D1 + phi3(-h) D2)
//   dpmsolver        y' = y - rho' h (phi1(h) N + phi2(h) N1 + phi3(h) N2)
//   sde-dpmsolver++  as dpmsolver++ with 2 h for h, + rho' sqrt(1 - e^-2h) z
//   sde-dpmsolver    y' = y - 2 rho' h (...) + rho' sqrt(e^2h - 1) z
// 1 and 2: derivatives in lambda, times h and h^2.
#pragma once

#include <string>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/run.h"

namespace ebb {

struct DpmSolverOptions {
  std::string algorithm_type = "dpmsolver++";
  int64_t solver_order = 2;
  std::string solver_type = "midpoint";
  bool lower_order_final = true;
  bool exact_third = false;
  double s_noise = 1;
  void fields(auto&& f) {
    f("algorithm_type", algorithm_type, "dpmsolver, dpmsolver++, sde-dpmsolver, sde-dpmsolver++");
    f("solver_order", solver_order, "1 to 3");
    f("solver_type", solver_type, "midpoint or heun: weights of the first derivative");
    f("lower_order_final", lower_order_final, "the last steps have lower order");
    f("exact_third", exact_third, "third order with weights that are exact");
    f("s_noise", s_noise, "standard deviation of new noise (sde)");
  }
  void check(std::string_view sampler) const;

  bool of_data() const { return algorithm_type.ends_with("++"); }
  bool sde() const { return algorithm_type.starts_with("sde"); }
};

// D, or the predicted noise in x.
Latent dpm_model(const Run& run, const Latent& x, const Latent& denoised, double sigma,
                 const DpmSolverOptions& options);

// A step with its model value at the start, and derivatives (0 if unknown).
struct DpmSolverStep {
  double from, to;  // to > 0
  Latent value, first = {}, second = {};
  bool half = false;  // `first` has half the value's weight
};
// The state at the end of the step, from x at its start.
Latent dpm_step(Run& run, const Latent& x, const DpmSolverStep& step,
                const DpmSolverOptions& options);
// At level 0: D. Draws as the dialect does.
Latent dpm_end(Run& run, const Latent& denoised, double from, const DpmSolverOptions& options);

}  // namespace ebb
