// Shown: what a batch tells of its progress.
#pragma once

#include <algorithm>
#include <functional>

#include "diffusion/denoiser.h"
#include "pipeline/request.h"

namespace ebb {

// The progress of a batch: from step to step, and within one by its evaluations.
class Shown {
 public:
  Shown(Denoiser& denoiser, const ResolvedRequest& r, const std::function<bool(double)>& progress)
      : denoiser_(denoiser), r_(r), progress_(progress) {
    if (progress)
      denoiser.watch([this](double share) {
        if (!within(share)) throw Cancelled("sample: stopped within a step");
      });
  }
  ~Shown() { denoiser_.watch({}); }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  // Throws Cancelled.
  void begin() {
    if (!step(0, static_cast<int64_t>(r_.call.sigmas.size()) - 1))
      throw Cancelled("sample: stopped before a step");
  }
  // `step` of the steps are done.
  bool step(int64_t step, int64_t steps) {
    step_ = static_cast<double>(step), steps_ = static_cast<double>(std::max<int64_t>(steps, 1));
    evaluations_ = denoiser_.evaluations();
    return tell(step_);
  }
  // All are. Throws Cancelled.
  void end() {
    if (step_ < steps_ && !tell(step_ = steps_)) throw Cancelled("sample: stopped at its end");
  }

 private:
  bool within(double share) {
    const double each = std::max(1.0, static_cast<double>(r_.counts.evaluations) / steps_);
    const auto before = static_cast<double>(denoiser_.evaluations() - evaluations_);
    return tell(std::min(step_ + std::min((before + share) / each, 1.0), steps_));
  }
  bool tell(double steps) const { return !progress_ || progress_(steps / steps_); }
  Denoiser& denoiser_;
  const ResolvedRequest& r_;
  const std::function<bool(double)>& progress_;
  double step_ = 0, steps_ = 1;
  int64_t evaluations_ = 0;  // when the step began
};

}  // namespace ebb
