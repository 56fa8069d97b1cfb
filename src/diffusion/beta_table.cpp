#include "diffusion/beta_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ebb {
namespace {

double lerp(double a, double b, int64_t i, int64_t count) {
  return a + (b - a) * static_cast<double>(i) / static_cast<double>(count - 1);
}

// alpha_bar of the cosine schedule at t of `timesteps`, but for a constant factor.
double cosine_level(int64_t t, int64_t timesteps) {
  constexpr double offset = 0.008;
  const double u = static_cast<double>(t) / static_cast<double>(timesteps);
  const double c = std::cos((u + offset) / (1 + offset) * std::numbers::pi / 2);
  return c * c;
}

double beta_of(std::string_view betas, int64_t t, int64_t timesteps) {
  if (betas == "linear") {
    const double scale = 1000.0 / static_cast<double>(timesteps);
    return lerp(scale * 1e-4, scale * 0.02, t, timesteps);
  }
  if (betas == "scaled_linear") {
    const double root = lerp(std::sqrt(0.00085), std::sqrt(0.012), t, timesteps);
    return root * root;
  }
  require(betas == "cosine", "beta_table: unknown betas '", betas, "'");
  return std::min(1 - cosine_level(t + 1, timesteps) / cosine_level(t, timesteps), 0.999);
}

}  // namespace

BetaTable beta_table(std::string_view betas, int64_t timesteps) {
  require(timesteps >= 2, "beta_table: timesteps must be at least 2 (", timesteps, ")");
  BetaTable t;
  double before = 1;  // alpha_bar one step earlier
  for (int64_t i = 0; i < timesteps; ++i) {
    const double beta = beta_of(betas, i, timesteps), bar = before * (1 - beta);
    t.beta.push_back(beta);
    t.alpha_bar.push_back(bar);
    t.sigma.push_back(std::sqrt((1 - bar) / bar));
    t.posterior_variance.push_back(beta * (1 - before) / (1 - bar));
    t.mean_x0.push_back(beta * std::sqrt(before) / (1 - bar));
    t.mean_xt.push_back((1 - before) * std::sqrt(1 - beta) / (1 - bar));
    before = bar;
  }
  for (size_t i = 0; i < t.beta.size(); ++i)
    t.posterior_log_variance.push_back(std::log(t.posterior_variance[std::max<size_t>(i, 1)]));
  return t;
}

}  // namespace ebb
