// Options shared by guidance rules: the scale, the window in which a rule applies, and its form.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "diffusion/guidance/guidance.h"

namespace ebb {

// Scales that differ from 1 by rounding count as 1: no further branch is evaluated.
inline bool is_one(double scale) { return std::abs(scale - 1) <= 1e-9; }

struct ScaleOptions {
  double scale = 7.5;
  bool use_original_formulation = false;
  void fields(auto&& f) {
    f("scale", scale, "guidance scale s of u + s (c - u); 1: off");
    f("use_original_formulation", use_original_formulation,
      "the scale is w of c + w (c - u) instead, s - 1; 0: off");
  }
  void check() const {
    require(std::isfinite(scale), "guidance: scale must be finite (", scale, ")");
  }
  // 1: off.
  double at(const StepContext& m) const {
    if (m.off) return 1;
    const double s = m.scale ? *m.scale : scale + (use_original_formulation ? 1 : 0);
    return is_one(s) ? 1 : s;
  }
};

// A range of noise levels and one of steps; both must hold.
struct WindowOptions {
  double sigma_lo = 0, sigma_hi = std::numeric_limits<double>::infinity();
  bool sigma_lo_included = false;
  double start = 0, stop = 1;
  bool start_excluded = false;
  void fields(auto&& f) {
    f("sigma_lo", sigma_lo, "on at noise levels above this");
    f("sigma_hi", sigma_hi, "and not above this");
    f("sigma_lo_included", sigma_lo_included, "on at the level sigma_lo, too");
    f("start", start, "on from step int(start steps), in [0, 1]");
    f("stop", stop, "and before step int(stop steps), in [0, 1]");
    f("start_excluded", start_excluded, "off in step int(start steps)");
  }
  void check() const {
    require(sigma_lo <= sigma_hi, "guidance: sigma_lo (", sigma_lo,
            ") must not be above sigma_hi (", sigma_hi, ")");
    require(start >= 0 && start <= stop && stop <= 1,
            "guidance: start and stop must rise within [0, 1] (", start, ", then ", stop, ")");
  }
  bool holds(const StepContext& m) const {
    const auto step = [&](double share) {
      return static_cast<int64_t>(share * static_cast<double>(m.steps));
    };
    const bool level =
        m.sigma <= sigma_hi && (sigma_lo_included ? m.sigma >= sigma_lo : m.sigma > sigma_lo);
    const bool late = start_excluded ? m.step > step(start) : m.step >= step(start);
    return level && late && m.step < step(stop);
  }
  std::vector<double> edges() const { return {sigma_lo, sigma_hi}; }
};

struct FormOption {
  std::string form = "data";
  void fields(auto&& f) {
    f("form", form, "data, velocity, raw (network output) or mixed (velocity, data on flow)");
  }
  void check() const { find_form(form); }
};

}  // namespace ebb
