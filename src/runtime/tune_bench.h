// Measures candidates: interleaved rounds for each signature, many signatures at once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tuner.h"

namespace ebb {

struct RaceOptions {
  int rounds = 3;          // after one in which slow candidates fall out
  double hopeless = 1.25;  // a candidate that is so many times slower than the best falls out
  std::function<void()> poll = {};  // asked between contests; what it throws ends the race
};

// Candidates for one signature, at least one.
struct Contest {
  std::vector<Choice> candidates;
  Signature sig;
};

struct Winner {
  Choice choice;
  double us = 0;  // of one run
};

// The winner of each contest, on random data. All candidates are prepared before the first of them
// runs, so that the device compiles what is generated side by side; all contests share their
// memory. On devices with memory of their own caches are cold, and the device takes the time. A
// candidate that throws falls out; throws Error if all of a contest do. Adds to `costs`.
std::vector<Winner> race(std::span<const Contest> contests, Device& device,
                         const RaceOptions& options, TuningCosts& costs);

}  // namespace ebb
