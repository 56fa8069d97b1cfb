// The race between the candidates of one signature.
#pragma once

#include <vector>

#include "runtime/tuner.h"

namespace ebb {

struct RaceOptions {
  int rounds = 4;
  double hopeless = 1.25;  // a candidate that is so many times slower than the best falls out
};
struct Winner {
  Choice choice;
  double us = 0;  // of one run
};
// Interleaved rounds on random data; on devices with memory of their own with cold caches, timed
// by the device. A candidate that throws falls out; throws Error if all do.
Winner race(const std::vector<Choice>& candidates, const Signature& sig, Device& device,
            const RaceOptions& options);

}  // namespace ebb
