// deis: integrates the polynomial through the last slopes (Zhang and Chen 2022,
// arXiv:2204.13902). A polynomial in what, tells the mode: time of a variance-preserving process
// (tab), noise level (rhoab, which is linear multistep) or its logarithm (log_rho).
#include <algorithm>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/vp.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t max_order = 3;
  std::string deis_mode = "tab";
  bool lower_order_final = false;
  void fields(auto&& f) {
    f("max_order", max_order, "how many slopes count, 1 to 4 (log_rho: 1 to 3)");
    f("deis_mode", deis_mode, "polynomials in time (tab), noise level (rhoab), its log (log_rho)");
    f("lower_order_final", lower_order_final, "below 15 steps the last two have order 2 and 1");
  }
  void check() const {
    check_choice("deis: deis_mode", deis_mode, {"tab", "rhoab", "log_rho"});
    const int64_t most = deis_mode == "log_rho" ? 3 : 4;
    require(max_order >= 1 && max_order <= most, "deis: max_order must be 1 to ", most, " (",
            max_order, ")");
  }
};

// From sigma(0.001) = 0.002 to sigma(1) = 80.
VpProcess edm_process() {
  const double low = std::log1p(0.002 * 0.002), high = std::log1p(80.0 * 80);
  const double slope = 2 * (low / 1e-3 - high) / (1e-3 - 1);
  return {slope, high - slope / 2};
}

// Sums as in the reference: they are approximations, and its results show it.
std::vector<double> time_weights(const std::vector<double>& levels, double to) {
  static const VpProcess process = edm_process();
  const double start = vp_time(levels[0], process), width = vp_time(to, process) - start;
  std::vector<double> nodes, moments(levels.size(), 0.0);
  for (const double s : levels) nodes.push_back(vp_time(s, process) - start);
  constexpr int points = 10000;
  for (int n = 0; n < points; ++n) {
    const double place = width * n / (points - 1);
    double term = vp_sigma_slope(start + place, process) * width / points;
    for (double& m : moments) {
      m += term;
      term *= place;
    }
  }
  return polynomial_weights(nodes, moments);
}

std::vector<double> level_weights(const std::vector<double>& levels, double to) {
  std::vector<double> nodes;
  for (const double s : levels) nodes.push_back(s - levels[0]);
  return polynomial_weights(nodes, power_moments(to - levels[0], nodes.size()));
}

// The integral of e^u u^k over the step is k! w^(k + 1) e^w phi_(k + 1)(-w).
std::vector<double> log_weights(const std::vector<double>& levels, double to) {
  std::vector<double> nodes;
  for (const double s : levels) nodes.push_back(std::log(s / levels[0]));
  const double w = std::log(to / levels[0]);
  const std::vector<double> moments = {to * w * phi(1, -w), to * w * w * phi(2, -w),
                                       2 * to * w * w * w * phi(3, -w)};
  return polynomial_weights(nodes, moments);
}

std::vector<double> weights(std::string_view mode, const std::vector<double>& levels, double to) {
  if (levels.size() == 1) return {to - levels[0]};
  if (mode == "tab") return time_weights(levels, to);
  return mode == "rhoab" ? level_weights(levels, to) : log_weights(levels, to);
}

Latent run(Run& run, Latent x, const Options& o) {
  // log_rho is for levels of x / alpha, the others for plain levels.
  const bool scaled = o.deis_mode == "log_rho";
  std::vector<double> sigmas = scaled ? run.finite_sigmas() : run.sigmas();
  const auto alpha = [&](double s) { return scaled ? run.alpha(s) : 1; };
  const auto level = [&](int64_t i) {
    const double s = sigmas[static_cast<size_t>(i)];
    return s / alpha(s);
  };
  History slopes(o.max_order);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    slopes.push((x - alpha(from) * denoised) / from);
    int64_t order = to == 0 ? 1 : slopes.size();
    if (o.lower_order_final && run.steps() < 15) order = std::min(order, run.steps() - i);
    std::vector<double> levels;
    for (int64_t k = 0; k < order; ++k) levels.push_back(level(i - k));
    x = alpha(to) / alpha(from) * x;
    x += alpha(to) * slopes.sum(weights(o.deis_mode, levels, to / alpha(to)));
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& deis() {
  static const Sampler s = make_sampler<Options>(
      {.name = "deis",
       .help = "integrates the polynomial through the last slopes",
       .order = 3,
       .aliases = {{.name = "deis_multistep",
                    .options = {{"deis_mode", "log_rho"},
                                {"max_order", "2"},
                                {"lower_order_final", "true"}},
                    .order = 2},
                   {.name = "deis_rhoab",
                    .options = {{"deis_mode", "rhoab"}, {"max_order", "4"}},
                    .order = 4,
                    .help = "a polynomial through the last slopes, by noise level"},
                   {"deis_log_rho", {{"deis_mode", "log_rho"}, {"lower_order_final", "true"}}}}},
      run);
  return s;
}

}  // namespace ebb::samplers
