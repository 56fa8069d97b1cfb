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

// Stages that have begun go on as they did; others are taken to be as fast as those on average.
double RunMeter::seconds_left() const {
  double spent = 0, worked = 0;
  for (size_t s = 0; s < stage_count; ++s)
    if (done_[s] > 0) spent += seconds_[s], worked += work_[s] * done_[s];
  if (worked == 0) return -1;
  double left = 0;
  for (size_t s = 0; s < stage_count; ++s) {
    const double rate = done_[s] > 0 ? seconds_[s] / done_[s] : work_[s] * spent / worked;
    left += (1 - done_[s]) * rate;
  }
  return left;
}

void RunMeter::show(Stage stage, double share) {
  const auto s = static_cast<size_t>(stage);
  const auto now = Clock::now();
  seconds_[s] += std::chrono::duration<double>(now - last_).count();
  last_ = now;
  done_[s] = std::max(done_[s], std::min(share, 1.0));
  if (!tells_) return;
  const double all = std::accumulate(work_.begin(), work_.end(), 0.0);
  const double done = std::inner_product(work_.begin(), work_.end(), done_.begin(), 0.0);
  if (!tells_({stage, done_[s], all > 0 ? done / all : 0, seconds_left()}))
    throw Cancelled(str("generate: stopped while ", name_of(stage)));
}

}  // namespace ebb
