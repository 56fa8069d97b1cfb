// Pace: how long a run will still take, by what its steps and the work between them took so far.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "train/metrics.h"

namespace ebb::train {

class Pace {
 public:
  void step(double seconds) { step_.add(seconds); }
  double seconds_a_step() const { return step_.value(); }  // smoothed; 0: of none yet
  // `what` comes every so many steps and behind the last one (0: only there). What it took this
  // time counts for the next ones.
  void took(const std::string& what, int64_t every, double seconds);
  // Runs it.
  void timed(const std::string& what, int64_t every, const std::function<void()>& work);
  // Seconds from `step` to the end of `steps`. Of work that did not come yet nothing is known.
  double left(int64_t step, int64_t steps) const;

 private:
  struct Work {
    int64_t every = 0;
    double seconds = 0;
  };
  Smoothed step_{0.9};
  std::map<std::string, Work> between_;
};

}  // namespace ebb::train
