// Measures the candidates of one signature against each other.
#pragma once

#include <vector>

#include "runtime/tuner.h"

namespace ebb {

struct RaceOptions {
  int rounds = 4;
  double hopeless = 1.25;  // a candidate slower than the best by this factor is dropped
};
struct Winner {
  Choice choice;
  double us = 0;  // of one run
};
// Interleaved rounds on random data; on devices with memory of their own with cold caches, timed by
// events. A candidate that throws is dropped; throws Error if all do.
Winner race(const std::vector<Choice>& candidates, const Signature& sig, Device& device,
            const RaceOptions& options);

}  // namespace ebb
