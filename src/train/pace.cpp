#include "train/pace.h"

#include <chrono>

namespace ebb::train {

void Pace::timed(const std::string& what, int64_t every, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  this->took(what, every, took.count());
}

void Pace::took(const std::string& what, int64_t every, double seconds) {
  between_[what] = {every, seconds};
}

double Pace::left(int64_t step, int64_t steps) const {
  if (step >= steps) return 0;
  double out = static_cast<double>(steps - step) * step_.value();
  for (const auto& [what, work] : between_) {
    const int64_t every = work.every > 0 ? work.every : steps;
    const int64_t times = steps / every - step / every + (steps % every == 0 ? 0 : 1);
    out += static_cast<double>(times) * work.seconds;
  }
  return out;
}

}  // namespace ebb::train
