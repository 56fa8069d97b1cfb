// deis: the polynomial through the last slopes, integrated over the step (Zhang and Chen 2022,
// arXiv:2204.13902). A polynomial in what, tells the mode: time of a variance-preserving process
// (tab), noise level (rhoab, which is linear multistep) or its logarithm (log_rho).
#include <algorithm>
#include <array>

#include "diffusion/solver/formulas.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

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
    constexpr std::array<std::string_view, 3> modes = {"tab", "rhoab", "log_rho"};
    require(std::find(modes.begin(), modes.end(), deis_mode) != modes.end(), "deis: deis_mode '",
            deis_mode, "' is not tab, rhoab or log_rho");
    const int64_t most = deis_mode == "log_rho" ? 3 : 4;
    require(max_order >= 1 && max_order <= most, "deis: max_order must be 1 to ", most, " (",
            max_order, ")");
  }
};

// ln(1 + sigma^2) = slope t^2 / 2 + first t, from sigma(0.001) = 0.002 to sigma(1) = 80.
struct VpTime {
  double slope, first;
  VpTime() {
    const double low = std::log1p(0.002 * 0.002), high = std::log1p(80.0 * 80);
    slope = 2 * (low / 1e-3 - high) / (1e-3 - 1);
    first = high - slope / 2;
  }
  double at(double sigma) const {
    const double level = std::log1p(sigma * sigma);
    return (std::sqrt(first * first + 2 * slope * level) - first) / slope;
  }
  double sigma_slope(double t) const {
    const double sigma = std::sqrt(std::expm1(t * (t * slope / 2 + first)));
    return (t * slope + first) * (sigma + 1 / sigma) / 2;
  }
};

// Sums as the reference makes them: they are not exact, and its results show it.
std::vector<double> time_weights(const std::vector<double>& levels, double to) {
  static const VpTime time;
  const double start = time.at(levels[0]), width = time.at(to) - start;
  std::vector<double> nodes, moments(levels.size(), 0.0);
  for (const double s : levels) nodes.push_back(time.at(s) - start);
  constexpr int points = 10000;
  for (int n = 0; n < points; ++n) {
    const double place = width * n / (points - 1);
    double term = time.sigma_slope(start + place) * width / points;
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
  const std::vector<double> moments = {to * w * phi1(-w), to * w * w * phi2(-w),
                                       2 * to * w * w * w * phi3(-w)};
  return polynomial_weights(nodes, moments);
}

std::vector<double> weights(std::string_view mode, const std::vector<double>& levels, double to) {
  if (levels.size() == 1) return {to - levels[0]};
  if (mode == "tab") return time_weights(levels, to);
  return mode == "rhoab" ? level_weights(levels, to) : log_weights(levels, to);
}

Latent run(Run& run, Latent x, const Options& o) {
  // log_rho is made for levels of x / alpha, the others for levels as they are.
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
       .help = "the polynomial through the last slopes, integrated over the step",
       .order = 3,
       .aliases = {{"deis_rhoab", {{"deis_mode", "rhoab"}, {"max_order", "4"}}},
                   {"deis_log_rho", {{"deis_mode", "log_rho"}, {"lower_order_final", "true"}}}}},
      run);
  return s;
}

}  // namespace ebb::samplers
