// Discretisation: the noise levels of a network, and its c_noise.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "diffusion/levels/beta_table.h"
#include "diffusion/levels/prediction.h"
#include "diffusion/solver/space.h"

namespace ebb {

// Levels are those of `sigmas` and, by interpolation in ln(sigma), between them (CNoise::table); or
// any, with a closed form for the time that they belong to (flow, cosine and log levels).
struct Discretisation {
  std::string name;
  Space space = Space::ve;
  CNoise c_noise = CNoise::table;
  double scale = 1;  // of c_noise
  // Rising: the levels of the timesteps, or so many of continuous levels as schedules pick from.
  std::vector<double> sigmas = {};
  bool discrete_only = false;  // the network has only the levels of `sigmas`
  double shift = 1;            // of flow and cosine levels
  // The network's range; sampling stays within.
  double lowest = 0, highest = std::numeric_limits<double>::infinity();
  double sigma_min = 0, sigma_max = 0;  // default ends of sampling

  // c_noise at sigma. `apart`: of a table, the nearest timestep of those of every(apart); 0: one
  // with a fraction.
  double c_noise_of(double sigma, int64_t apart = 0) const;
  // The time in which levels are evenly spaced, rising from 0 (of tables and log levels it is
  // c_noise; of flow models scale t, before shifting), and its inverse. Within `sigmas` if c_noise
  // is a table.
  double time_of(double sigma) const;
  double sigma_of_time(double time) const;
  // The level at a fraction of the way from noise (0) to data (1) in time; outside: beyond all
  // levels.
  double at_percent(double percent) const;
  // The nearest level of the network.
  double round(double sigma) const;
};

// The levels of a network, as text and flags.
struct LevelOptions {
  std::string levels = "scaled_linear";
  int64_t timesteps = 1000;
  double beta_start = 0, beta_end = 0;
  std::string zero_snr = "no";
  double shift = 1, multiplier = 1000;
  double sigma_min = 0, sigma_max = 0;
  void fields(auto&& f) {
    f("levels", levels,
      "linear, scaled_linear, cosine, sigmoid, sqrt_linear or sqrt betas, flow, edm, vp, ve, "
      "iddpm, atan, cascade or rflow");
    f("timesteps", timesteps, "number of noise levels");
    f("beta_start", beta_start, "first beta; 0: the usual one");
    f("beta_end", beta_end, "last beta; 0: the usual one");
    f("zero_snr", zero_snr, "no signal at the last level: no, comfy or diffusers (how near to 0)");
    f("shift", shift, "flow: of the levels, s t / (1 + (s - 1) t); cascade: of the noise");
    f("multiplier", multiplier, "flow: the network's timestep is multiplier * sigma");
    f("sigma_min", sigma_min,
      "edm, vp, ve, atan, rflow: smallest level of sampling; 0: the usual one");
    f("sigma_max", sigma_max,
      "edm, vp, ve, atan, rflow: largest level of sampling; 0: the usual one");
  }
  void check() const;  // checks single values; throws Error, suggests the nearest
};
// Throws Error for options that such levels do not have.
Discretisation discretisation(const LevelOptions& options);

// Of a discrete-time network.
Discretisation table_levels(std::string name, std::vector<double> sigmas);
// Of every `apart`-th timestep of a table, the last one among them. Throws Error for fewer than
// two.
Discretisation every(int64_t apart, const Discretisation& table);
// Of a flow model: t in (0, 1] in `count` parts, shifted.
struct FlowLevels {
  double shift = 1, multiplier = 1000;
  int64_t count = 1000;
};
Discretisation flow_levels(const FlowLevels& options);

// ---- flow ----------------------------------------------------------------------------------

// s t / (1 + (s - 1) t): time as levels for images that noise hides less (Esser et al. 2024,
// arXiv:2403.03206, equation 23). Flux writes s as exp(mu).
double shifted(double t, double shift);
double unshifted(double sigma, double shift);

// mu on the line through two sizes of images in tokens.
struct MuLine {
  double tokens = 256, mu = 0.5, more_tokens = 4096, more_mu = 1.15;  // Flux's
};
double mu_of(double tokens, const MuLine& line = {});
// Of FLUX.2, by tokens and number of steps.
double flux2_mu(double tokens, double steps);

// Ranges of the published VP and VE models.
inline constexpr double vp_smallest_time = 1e-5;  // in training
inline constexpr double vp_time_scale = 999;      // c_noise of t = 1
inline constexpr double ve_sigma_min = 0.02, ve_sigma_max = 100;

}  // namespace ebb
