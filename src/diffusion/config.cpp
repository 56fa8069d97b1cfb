#include "diffusion/config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/choices.h"
#include "base/error.h"
#include "diffusion/field_use.h"

namespace ebb {
namespace {

void check_positive(std::string_view field, double value) {
  require(std::isfinite(value), "diffusion: ", field, " must be finite (", value, ")");
  require(value > 0, "diffusion: ", field, " must be positive (", value, ")");
}

// Fields that not all networks have, or that only training uses.
struct FieldUse {
  std::string_view field;
  std::vector<std::string_view> preconds = {};  // empty: all
  bool training = false;
};

const FieldUse& use_of(std::string_view field) {
  static const std::vector<std::string_view> betas = {"eps", "v", "x0"},
                                             tables = {"eps", "v", "x0", "iddpm"},
                                             counted = {"eps", "v", "x0", "iddpm", "flow"},
                                             edm = {"edm"}, flow = {"flow"};
  static const std::vector<FieldUse> uses = {{"sigma_data", edm},
                                             {"noise_scale", edm},
                                             {"P_mean", edm, true},
                                             {"P_std", edm, true},
                                             {"betas", betas},
                                             {"zero_snr", betas},
                                             {"timesteps", counted},
                                             {"learn_sigma", tables},
                                             {"vb_weight", tables, true},
                                             {"times", flow, true},
                                             {"t_mean", flow, true},
                                             {"t_std", flow, true},
                                             {"shift", flow},
                                             {"time_scale", flow},
                                             {"weighting", {}, true},
                                             {"min_snr_gamma", {}, true},
                                             {"noise_offset", {}, true},
                                             {"label_dropout", {}, true}};
  static const FieldUse of_all = {};
  const auto found =
      std::find_if(uses.begin(), uses.end(), [&](const FieldUse& u) { return u.field == field; });
  return found == uses.end() ? of_all : *found;
}

}  // namespace

bool only_training(std::string_view field) { return use_of(field).training; }

bool applies(std::string_view field, std::string_view precond) {
  const std::vector<std::string_view>& preconds = use_of(field).preconds;
  return preconds.empty() || std::ranges::find(preconds, precond) != preconds.end();
}

void check_applies(std::string_view field, std::string_view precond) {
  if (applies(field, precond)) return;
  const std::vector<std::string_view>& preconds = use_of(field).preconds;
  std::string all;
  for (const std::string_view p : preconds)
    all += str(all.empty() ? "" : p == preconds.back() ? " or " : ", ", p);
  fail("diffusion: ", field, " is for precond ", all, " (the model's is ", precond, ")");
}

void check(const DiffusionConfig& c) {
  check_choices(c, [](std::string_view field) { return str("diffusion: unknown ", field); });
  check_positive("sigma_data", c.sigma_data);
  check_positive("noise_scale", c.noise_scale);
  check_positive("P_std", c.P_std);
  check_positive("min_snr_gamma", c.min_snr_gamma);
  require(c.noise_offset >= 0 && c.noise_offset <= 1,
          "diffusion: noise_offset must be from 0 to 1 (", c.noise_offset, ")");
  require(c.weighting == "min_snr" || c.min_snr_gamma == DiffusionConfig{}.min_snr_gamma,
          "diffusion: min_snr_gamma is for weighting min_snr (", c.min_snr_gamma,
          ", and weighting is ", c.weighting, ")");
  check_positive("t_std", c.t_std);
  check_positive("shift", c.shift);
  check_positive("time_scale", c.time_scale);
  require(std::isfinite(c.t_mean), "diffusion: t_mean must be finite (", c.t_mean, ")");
  require(std::isfinite(c.P_mean), "diffusion: P_mean must be finite (", c.P_mean, ")");
  constexpr int64_t most_timesteps = 100'000;  // of tables, which are made of them all
  require(c.timesteps >= 2 && c.timesteps <= most_timesteps,
          "diffusion: timesteps must lie in [2, ", most_timesteps, "] (", c.timesteps, ")");
  // Linear betas end at 20 / timesteps, which must stay below 1.
  require(!c.discrete() || c.precond == "iddpm" || c.betas != "linear" || c.timesteps > 20,
          "diffusion: linear betas need more than 20 timesteps (", c.timesteps, ")");
  require(!c.learn_sigma || c.discrete(),
          "diffusion: learn_sigma needs precond eps, v, x0 or iddpm (", c.precond, ")");
  require(std::isfinite(c.vb_weight) && c.vb_weight >= 0,
          "diffusion: vb_weight must not be negative (", c.vb_weight, ")");
  require(c.label_dropout >= 0 && c.label_dropout <= 1,
          "diffusion: label_dropout must lie in [0, 1] (", c.label_dropout, ")");
  require(std::isfinite(c.sigma_min) && std::isfinite(c.sigma_max), "diffusion: sigma_min (",
          c.sigma_min, ") and sigma_max (", c.sigma_max, ") must be finite");
  require(c.sigma_min >= 0 && c.sigma_max >= 0, "diffusion: sigma_min (", c.sigma_min,
          ") and sigma_max (", c.sigma_max, ") must not be negative");
  require(c.sigma_min == 0 || c.sigma_max == 0 || c.sigma_min < c.sigma_max,
          "diffusion: sigma_min (", c.sigma_min, ") must be below sigma_max (", c.sigma_max, ")");
}

}  // namespace ebb
