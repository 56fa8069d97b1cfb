#include "diffusion/precond.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ebb {
namespace {

Prediction prediction_of(const DiffusionConfig& c) {
  if (c.precond == "edm") return Prediction::edm;
  if (c.precond == "ve") return Prediction::ve;
  if (c.precond == "v") return Prediction::v;
  if (c.precond == "x0") return Prediction::x0;
  if (c.precond == "flow") return Prediction::flow;
  return Prediction::eps;
}

double within(const Discretisation& d, std::string_view name, double sigma) {
  require(sigma >= d.lowest * (1 - 1e-6) && sigma <= d.highest * (1 + 1e-6), "diffusion: ", name,
          " (", sigma, ") must lie in [", d.lowest, ", ", d.highest,
          "], the noise the network knows");
  return sigma;
}

Discretisation levels_of(const DiffusionConfig& c, const BetaTable& table) {
  Discretisation d;
  if (c.discrete() && c.precond != "iddpm") {
    d = table_levels(c.precond, table.sigma);
  } else {
    LevelOptions o{.levels = c.precond};
    if (c.precond == "flow") o.shift = c.shift, o.multiplier = c.time_scale;
    if (c.precond == "flow" || c.precond == "iddpm") o.timesteps = c.timesteps;
    d = discretisation(o);
  }
  if (c.precond == "edm") d.scale = c.noise_scale;
  if (c.sigma_min > 0) d.sigma_min = within(d, "sigma_min", c.sigma_min);
  if (c.sigma_max > 0) d.sigma_max = within(d, "sigma_max", c.sigma_max);
  return d;
}

}  // namespace

Precond::Precond(const DiffusionConfig& config)
    : config_(config), prediction_(prediction_of(config)) {
  check(config_);
  if (config_.discrete())
    table_ = with_zero_snr(
        beta_table(config_.precond == "iddpm" ? "cosine" : config_.betas, config_.timesteps),
        config_.zero_snr);
  levels_ = levels_of(config_, table_);
  const PrecondExpressions f = expressions(Scalar::input(0));
  const Scalar results[] = {f.skip, f.out, f.in, f.noise.value_or(0.0)};
  expr_ = Expr(1, results);
}

PrecondExpressions Precond::expressions(const Scalar& s) const {
  const PrecondFactors<Scalar> f = precond_factors(prediction_, s, config_.sigma_data);
  PrecondExpressions out{f.skip, f.out, f.in, f.rest, std::nullopt};
  if (has_expression(levels_.c_noise))
    out.noise = c_noise_expression(levels_.c_noise, levels_.scale, s);
  return out;
}

PrecondNumbers Precond::at(double sigma, int64_t apart) const {
  std::array<double, 4> y{};
  expr_.evaluate(std::array{sigma}, y);
  if (config_.discrete()) y[3] = levels_.c_noise_of(sigma, apart);
  return {y[0], y[1], y[2], y[3]};
}

double Precond::timestep_of(double sigma) const {
  require(config_.discrete(), "precond: ", config_.precond, " has no timesteps");
  return levels_.time_of(sigma);
}

std::string default_schedule(const DiffusionConfig& config) {
  if (config.precond == "edm") return "karras";
  if (config.precond == "flow") return "flow";
  if (config.discrete() && config.precond != "iddpm") return "normal";
  return config.precond;
}

}  // namespace ebb
