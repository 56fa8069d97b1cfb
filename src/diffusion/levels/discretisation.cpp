#include "diffusion/levels/discretisation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "diffusion/levels/spacings.h"
#include "diffusion/solver/timesteps.h"

namespace ebb {
namespace {

// ---- tables --------------------------------------------------------------------------------

// ---- the cosine process in continuous time (Stable Cascade) --------------------------------

constexpr double smallest_bar = 1e-4, largest_bar = 0.9999;

double cosine_sigma(double t, double shift) {
  double bar = std::pow(cosine_signal(t) / cosine_signal(0), 2);
  if (shift != 1) {
    const double b = std::clamp(bar, smallest_bar, largest_bar);
    bar = 1 / (1 + (1 - b) / b * shift * shift);
  }
  bar = std::clamp(bar, smallest_bar, largest_bar);
  return std::sqrt((1 - bar) / bar);
}

double cosine_time(double sigma, double shift) {
  const double unshifted = sigma / shift;
  const double bar = 1 / (1 + unshifted * unshifted);
  const double angle = std::acos(std::sqrt(bar) * cosine_signal(0)) / (std::numbers::pi / 2);
  return angle * (1 + cosine_offset) - cosine_offset;
}

// ---- continuous levels ---------------------------------------------------------------------

constexpr int64_t picked_levels = 1000;  // of which schedules pick

Discretisation between(Discretisation d, const LevelOptions& o) {
  if (o.sigma_min > 0) d.sigma_min = o.sigma_min;
  if (o.sigma_max > 0) d.sigma_max = o.sigma_max;
  require(d.lowest <= d.sigma_min && d.sigma_min < d.sigma_max && d.sigma_max <= d.highest,
          "levels: sigma_min (", d.sigma_min, ") must be below sigma_max (", d.sigma_max,
          "), both in [", d.lowest, ", ", d.highest, "], the noise that levels ", d.name, " know");
  d.sigmas = log_spaced(d.sigma_min, d.sigma_max, picked_levels);
  return d;
}

Discretisation cascade_levels(double shift) {
  Discretisation d{.name = "cascade", .c_noise = CNoise::cosine, .shift = shift};
  constexpr int64_t count = 10000;
  for (int64_t i = 1; i <= count; ++i)
    d.sigmas.push_back(cosine_sigma(static_cast<double>(i) / count, shift));
  d.sigma_min = d.lowest = d.sigmas.front();
  d.sigma_max = d.highest = d.sigmas.back();
  return d;
}

Discretisation beta_levels(const LevelOptions& o) {
  BetaTable t =
      with_zero_snr(beta_table(o.levels, o.timesteps, {o.beta_start, o.beta_end}), o.zero_snr);
  return table_levels(o.levels, std::move(t.sigma));
}

// ---- options -------------------------------------------------------------------------------

constexpr int64_t most_timesteps = 1'000'000;

std::vector<std::string> level_names() {
  std::vector<std::string> names = beta_names();
  for (const char* name : {"flow", "edm", "vp", "ve", "iddpm", "atan", "cascade", "rflow"})
    names.emplace_back(name);
  return names;
}

// Whether levels of this name have the option.
bool has_option(std::string_view levels, std::string_view option) {
  const auto is = [levels](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), levels) != names.end();
  };
  const std::vector<std::string>& betas = beta_names();
  const bool table = std::find(betas.begin(), betas.end(), levels) != betas.end();
  if (option == "timesteps") return table || is({"flow", "iddpm"});
  if (option == "beta_start" || option == "beta_end") return table && levels != "cosine";
  if (option == "zero_snr") return table;
  if (option == "shift") return is({"flow", "cascade"});
  if (option == "multiplier") return levels == "flow";
  return is({"edm", "vp", "ve", "atan", "rflow"});  // sigma_min, sigma_max
}

std::string levels_with(std::string_view option) {
  std::string out;
  for (const std::string& name : level_names())
    if (has_option(name, option)) out += (out.empty() ? "" : ", ") + name;
  return out;
}

// Nothing that is set is ignored.
void check_together(LevelOptions o) {
  LevelOptions usual;
  const std::vector<Field> fields = fields_of(o), others = fields_of(usual);
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = fields[i].name;
    if (name == "levels" || field_text(fields[i]) == field_text(others[i])) continue;
    require(has_option(o.levels, name), "levels: ", name, " (", field_text(fields[i]),
            ") does not go with levels ", o.levels, "; these have it: ", levels_with(name));
  }
}

}  // namespace

void LevelOptions::check() const {
  check_known("levels: unknown levels", levels, level_names());
  require(timesteps >= 2 && timesteps <= most_timesteps, "levels: timesteps must lie in [2, ",
          most_timesteps, "] (", timesteps, ")");
  for (const double beta : {beta_start, beta_end})
    require(beta >= 0 && beta < 1, "levels: betas must lie in [0, 1) (", beta, ")");
  check_known("levels: unknown zero_snr", zero_snr, zero_snr_names());
  require(std::isfinite(shift) && shift > 0, "levels: shift must be positive (", shift, ")");
  require(std::isfinite(multiplier) && multiplier > 0, "levels: multiplier must be positive (",
          multiplier, ")");
  for (const double sigma : {sigma_min, sigma_max})
    require(std::isfinite(sigma) && sigma >= 0,
            "levels: sigma_min and sigma_max must be finite and not negative (", sigma, ")");
}

// ---- a discretisation ----------------------------------------------------------------------

double Discretisation::c_noise_of(double sigma, int64_t apart) const {
  if (c_noise == CNoise::cosine) return cosine_time(sigma, shift);
  if (c_noise == CNoise::arctan) return std::atan(sigma) * 2 / std::numbers::pi;
  if (c_noise != CNoise::table) return c_noise_expression(c_noise, scale, sigma);
  if (apart == 0 && !discrete_only) return timestep_of(sigmas, sigma);
  return nearest_timestep(sigmas, round(sigma), std::max<int64_t>(apart, 1));
}

double Discretisation::time_of(double sigma) const {
  if (space == Space::flow) return unshifted(sigma, shift) * scale;
  return c_noise == CNoise::table ? timestep_of(sigmas, sigma) : c_noise_of(sigma);
}

double Discretisation::sigma_of_time(double time) const {
  if (space == Space::flow) return shifted(time / scale, shift);
  switch (c_noise) {
    case CNoise::log: return std::exp(time / scale);
    case CNoise::log_half: return 2 * std::exp(time);
    case CNoise::vp_time: return vp_sigma(time / scale);
    case CNoise::ratio: return time < 1 ? std::min(time / (1 - time), sigma_max) : sigma_max;
    case CNoise::arctan: return std::tan(time * std::numbers::pi / 2);
    case CNoise::cosine: return cosine_sigma(time, shift);
    default: return sigma_at(sigmas, time);
  }
}

double Discretisation::at_percent(double percent) const {
  if (percent <= 0) return space == Space::flow ? 1 : 999999999.9;
  if (percent >= 1) return 0;
  const double left = 1 - percent;
  if (space == Space::flow) return shifted(left, shift);
  if (c_noise == CNoise::cosine) return cosine_sigma(left, shift);
  if (c_noise == CNoise::table)
    return sigma_at(sigmas, left * static_cast<double>(sigmas.size() - 1));
  return std::exp(std::log(sigma_min) + (std::log(sigma_max) - std::log(sigma_min)) * left);
}

double Discretisation::round(double sigma) const {
  if (!discrete_only) return sigma;
  const auto above = std::lower_bound(sigmas.begin(), sigmas.end(), sigma);
  if (above == sigmas.begin()) return *above;
  if (above == sigmas.end()) return sigmas.back();
  return *above - sigma < sigma - *(above - 1) ? *above : *(above - 1);
}

Discretisation table_levels(std::string name, std::vector<double> sigmas) {
  Discretisation d{.name = std::move(name), .sigmas = std::move(sigmas)};
  d.sigma_min = d.lowest = d.sigmas.front();
  d.sigma_max = d.highest = d.sigmas.back();
  return d;
}

Discretisation every(int64_t apart, const Discretisation& table) {
  std::vector<double> sigmas = every_timestep(apart, table.sigmas);
  require(sigmas.size() >= 2, "levels: every ", apart, "th of ", table.sigmas.size(),
          " timesteps leaves too few");
  return table_levels(table.name, std::move(sigmas));
}

Discretisation flow_levels(const FlowLevels& o) {
  require(o.count >= 2, "levels: flow needs at least 2 levels (", o.count, ")");
  Discretisation d{.name = "flow",
                   .space = Space::flow,
                   .c_noise = CNoise::level,
                   .scale = o.multiplier,
                   .shift = o.shift,
                   .highest = 1};
  for (int64_t i = 1; i <= o.count; ++i)
    d.sigmas.push_back(shifted(static_cast<double>(i) / static_cast<double>(o.count), o.shift));
  d.sigma_min = d.sigmas.front();
  d.sigma_max = d.sigmas.back();
  return d;
}

Discretisation discretisation(const LevelOptions& o) {
  o.check();
  check_together(o);
  const std::string& name = o.levels;
  if (name == "flow") return flow_levels({o.shift, o.multiplier, o.timesteps});
  if (name == "cascade") return cascade_levels(o.shift);
  if (name == "iddpm") {
    Discretisation d = table_levels(name, beta_table("cosine", o.timesteps).sigma);
    d.discrete_only = true;
    d.sigma_max = std::min(d.sigma_max, 80.0);
    return d;
  }
  Discretisation d{.name = name, .sigma_min = 0.002, .sigma_max = 80};
  if (name == "edm") {
    d.c_noise = CNoise::log;
    d.scale = 0.25;
    return between(d, o);
  }
  if (name == "rflow" || name == "atan") {
    d.c_noise = name == "rflow" ? CNoise::ratio : CNoise::arctan;
    return between(d, o);
  }
  if (name == "vp") {
    d.c_noise = CNoise::vp_time;
    d.scale = vp_time_scale;
    d.lowest = vp_sigma(vp_smallest_time);
    d.highest = vp_sigma(1.0);
    return between(d, o);
  }
  if (name == "ve") {
    d.c_noise = CNoise::log_half;
    d.lowest = d.sigma_min = ve_sigma_min;
    d.highest = ve_sigma_max;
    return between(d, o);
  }
  return beta_levels(o);
}

// ---- flow ----------------------------------------------------------------------------------

double shifted(double t, double shift) { return shift * t / (1 + (shift - 1) * t); }
double unshifted(double sigma, double shift) { return sigma / (shift - (shift - 1) * sigma); }

double mu_of(double tokens, const MuLine& l) {
  return l.mu + (l.more_mu - l.mu) / (l.more_tokens - l.tokens) * (tokens - l.tokens);
}

double flux2_mu(double tokens, double steps) {
  const double many = 1.6927e-4 * tokens + 0.45666666;  // 200 steps
  if (tokens > 4300) return many;
  const double few = 8.73809524e-5 * tokens + 1.89833333;  // 10 steps
  const double slope = (many - few) / 190;
  return slope * steps + many - 200 * slope;
}

}  // namespace ebb
