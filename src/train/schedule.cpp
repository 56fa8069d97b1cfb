#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/names.h"

namespace ebb::train {

const std::vector<std::string>& rate_schedules() {
  static const std::vector<std::string> kinds = {"constant", "cosine", "linear", "rsqrt"};
  return kinds;
}

void check(const RateSchedule& s) {
  check_known("schedule: unknown kind", s.kind, rate_schedules());
  using Limits = std::numeric_limits<float>;  // below the smallest, devices may take it for 0
  require(s.lr >= Limits::min() && s.lr <= Limits::max(), "lr: must be above 0 and finite as f32 (",
          s.lr, ")");
  require(s.warmup >= 0, "warmup: must not be negative (", s.warmup, ")");
  require(s.final >= 0 && s.final <= 1, "lr_final: must be from 0 to 1 (", s.final, ")");
  require((s.kind != "cosine" && s.kind != "linear") || s.steps > s.warmup, "schedule: ", s.kind,
          " needs steps (", s.steps, ") above warmup (", s.warmup, ")");
  require(s.final == 0 || s.kind == "cosine" || s.kind == "linear",
          "lr_final: is for the schedules cosine and linear (", s.final, ", and schedule is ",
          s.kind, ")");
  require(s.reference == 0 || s.kind == "rsqrt", "lr_reference: is for the schedule rsqrt (",
          s.reference, ", and schedule is ", s.kind, ")");
  require(s.kind != "rsqrt" || s.reference > 0, "schedule: rsqrt needs lr_reference above 0 (",
          s.reference, ")");
}

double rate_at(const RateSchedule& s, int64_t step) {
  const auto t = static_cast<double>(step);
  const double warm = step < s.warmup ? (t + 1) / static_cast<double>(s.warmup) : 1.0;
  if (s.kind == "rsqrt") return s.lr * warm / std::sqrt(std::max(t / s.reference, 1.0));
  if (s.kind == "constant" || step < s.warmup) return s.lr * warm;
  const double progress =
      std::min((t - static_cast<double>(s.warmup)) / static_cast<double>(s.steps - s.warmup), 1.0);
  const double share =
      s.kind == "linear" ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return s.lr * (s.final + (1 - s.final) * share);
}

void check(const EmaSchedule& s) {
  require(s.decay >= 0 && s.decay < 1, "ema: must be from 0 to below 1 (", s.decay, ")");
  require(s.halflife >= 0, "ema_halflife: must not be negative (", s.halflife, ")");
  require(s.rampup >= 0, "ema_rampup: must not be negative (", s.rampup, ")");
}

double ema_decay_at(const EmaSchedule& s, int64_t step, int64_t batch) {
  if (s.halflife <= 0) return s.decay;
  const auto images = static_cast<double>(batch);
  const double seen = images * static_cast<double>(step);
  const double halflife = s.rampup > 0 ? std::min(s.halflife, seen * s.rampup) : s.halflife;
  return halflife > 0 ? std::exp2(-images / halflife) : 0.0;
}

}  // namespace ebb::train
