#include "pipeline/run_progress.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "diffusion/solver/run.h"

namespace ebb {

std::string_view name_of(Stage stage) {
  constexpr std::string_view names[stage_count] = {"text", "encoding", "sampling", "decoding"};
  return names[static_cast<size_t>(stage)];
}

RunMeter::RunMeter(const StageWork& work, std::function<bool(const RunProgress&)> tells)
    : work_(work), tells_(std::move(tells)) {}

// Stages that were measured go on as they did; others are as fast as the one with the most work.
double RunMeter::seconds_left() const {
  constexpr double share = 0.005, time = 1;  // of a stage, or seconds: enough of either
  const auto measured = [&](size_t s) {
    const double done = done_[s] - first_done_[s];
    return done >= share || (done > 0 && seconds_[s] - first_seconds_[s] >= time);
  };
  const auto whole = [&](size_t s) {  // seconds
    return (seconds_[s] - first_seconds_[s]) / (done_[s] - first_done_[s]);
  };
  const auto most = static_cast<size_t>(std::ranges::max_element(work_) - work_.begin());
  if (!measured(most)) return -1;
  double left = 0;
  for (size_t s = 0; s < stage_count; ++s)
    left += (1 - done_[s]) * (measured(s) ? whole(s) : whole(most) * work_[s] / work_[most]);
  return left;
}

void RunMeter::show(Stage stage, double share) {
  const auto s = static_cast<size_t>(stage);
  stage_ = stage;
  const auto now = Clock::now();
  seconds_[s] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
  if (done_[s] == 0 && share > 0) first_done_[s] = share, first_seconds_[s] = seconds_[s];
  done_[s] = std::max(done_[s], std::min(share, 1.0));
  if (!tells_) return;
  const double all = std::accumulate(work_.begin(), work_.end(), 0.0);
  const double done = std::inner_product(work_.begin(), work_.end(), done_.begin(), 0.0);
  if (!tells_({stage, done_[s], all > 0 ? done / all : 0, seconds_left()}))
    throw Cancelled(str("generate: stopped while ", name_of(stage)));
}

}  // namespace ebb
