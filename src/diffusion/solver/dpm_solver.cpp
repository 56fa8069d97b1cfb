#include "diffusion/solver/dpm_solver.h"

#include <algorithm>
#include <vector>

namespace ebb {
namespace {

struct Weights {
  double keep = 1, value = 0, first = 0, second = 0, noise = 0;  // of y = x / alpha
};

Weights data_weights(double h, double to, const DpmSolverOptions& o) {
  const double twice = o.sde() ? 2 * h : h;
  Weights w;
  w.keep = std::exp(-twice);
  w.value = -std::expm1(-twice);
  w.first = twice * phi(2, -twice);
  // The stochastic third order has two signs wrong where it is known: nothing is left of the order.
  w.second = o.sde() && !o.exact_third ? -phi(2, -twice) - 0.5 : twice * phi(3, -twice);
  if (o.sde()) w.noise = to * std::sqrt(-std::expm1(-2 * h));
  return w;
}

Weights noise_weights(double h, double to, const DpmSolverOptions& o) {
  const double scale = o.sde() ? -2 * to : -to;
  Weights w;
  w.value = scale * std::expm1(h);
  w.first = scale * h * phi(2, h);
  w.second = scale * h * phi(3, h);
  if (o.sde()) w.noise = to * std::sqrt(std::expm1(2 * h));
  return w;
}

}  // namespace

void DpmSolverOptions::check(std::string_view sampler) const {
  check_choice(str(sampler, ": algorithm_type"), algorithm_type,
               {"dpmsolver", "dpmsolver++", "sde-dpmsolver", "sde-dpmsolver++"});
  check_choice(str(sampler, ": solver_type"), solver_type, {"midpoint", "heun"});
  const int64_t most = algorithm_type == "sde-dpmsolver" ? 2 : 3;
  require(solver_order >= 1 && solver_order <= most, sampler, ": solver_order of ", algorithm_type,
          " must be 1 to ", most, " (", solver_order, ")");
  check_not_negative("s_noise", s_noise);
  require(sde() || s_noise == 1, sampler, ": s_noise (", s_noise,
          ") is of the sde algorithms, not ", algorithm_type);
  require(!exact_third || solver_order == 3, sampler, ": exact_third is of solver_order 3, not ",
          solver_order);
}

Latent dpm_model(const Run& run, const Latent& x, const Latent& denoised, double sigma,
                 const DpmSolverOptions& o) {
  return o.of_data() ? denoised : (x - run.alpha(sigma) * denoised) / sigma;
}

Latent dpm_step(Run& run, const Latent& x, const DpmSolverStep& s, const DpmSolverOptions& o) {
  const double alpha = run.alpha(s.to), rho = s.to / alpha;
  const double h = std::log(s.from / run.alpha(s.from) / rho);
  Weights w = o.of_data() ? data_weights(h, rho, o) : noise_weights(h, rho, o);
  if (s.half) w.first = w.value / 2;
  Latent y = w.keep * alpha / run.alpha(s.from) * x;
  y.add(s.value, alpha * w.value);
  y.add(s.first, alpha * w.first);
  y.add(s.second, alpha * w.second);
  if (o.sde()) y.add(run.noise(s.from, s.to), alpha * w.noise * o.s_noise);
  return y;
}

Latent dpm_end(Run& run, const Latent& denoised, double from, const DpmSolverOptions& o) {
  if (o.sde() && run.dialect().draws_unused_last) run.noise(from, 0);
  return denoised;
}

}  // namespace ebb
