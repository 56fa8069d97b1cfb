// Options that guidance rules share: the scale, when a rule is at work, and its form.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "diffusion/guidance/guidance.h"

namespace ebb {

// Scales that differ from 1 by rounding are 1: nobody pays for another prediction.
inline bool is_one(double scale) { return std::abs(scale - 1) <= 1e-9; }

struct ScaleOptions {
  double scale = 7.5;
  bool above_cond = false;
  void fields(auto&& f) {
    f("scale", scale, "how far from the unconditional to the conditional prediction; 1: off");
    f("above_cond", above_cond, "the scale counts from the conditional prediction; 0: off");
  }
  void check() const {
    require(std::isfinite(scale), "guidance: scale must be finite (", scale, ")");
  }
  // 1: off.
  double at(const Moment& m) const {
    if (m.off) return 1;
    const double s = m.scale ? *m.scale : scale + (above_cond ? 1 : 0);
    return is_one(s) ? 1 : s;
  }
};

// A range of noise levels and one of steps; both must hold.
struct WindowOptions {
  double low = 0, high = std::numeric_limits<double>::infinity();
  bool low_included = false;
  double start = 0, stop = 1;
  bool start_excluded = false;
  void fields(auto&& f) {
    f("low", low, "the noise level must be above");
    f("high", high, "the noise level must not be above");
    f("low_included", low_included, "the level `low` is within");
    f("start", start, "the first step is the integer part of this share of all steps");
    f("stop", stop, "the first step beyond, likewise");
    f("start_excluded", start_excluded, "that first step is not within");
  }
  void check() const {
    require(low <= high, "guidance: low (", low, ") must not be above high (", high, ")");
    require(start >= 0 && start <= stop && stop <= 1,
            "guidance: start and stop must rise within [0, 1] (", start, ", then ", stop, ")");
  }
  bool holds(const Moment& m) const {
    const auto step = [&](double share) {
      return static_cast<int64_t>(share * static_cast<double>(m.steps));
    };
    const bool level = m.sigma <= high && (low_included ? m.sigma >= low : m.sigma > low);
    const bool late = start_excluded ? m.step > step(start) : m.step >= step(start);
    return level && late && m.step < step(stop);
  }
};

struct FormOption {
  std::string form = "data";
  void fields(auto&& f) {
    f("form", form, "what the rule calculates in: data, velocity, raw or mixed");
  }
  void check() const { find_form(form); }
};

}  // namespace ebb
