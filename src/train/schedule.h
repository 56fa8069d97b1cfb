// Schedules: learning rate and EMA decay as pure functions of the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb::train {

// Their names, below.
const std::vector<std::string>& rate_schedules();

// The rate rises linearly over the first `warmup` steps and then follows `kind`:
//   constant  lr
//   cosine    from lr to lr * final along half a cosine, reached at `steps`
//   linear    from lr to lr * final along a line, reached at `steps`
//   rsqrt     lr / sqrt(max(step / reference, 1)) (Karras et al. 2024, arXiv:2312.02696)
struct RateSchedule {
  std::string kind = "constant";
  double lr = 2e-4;
  int64_t warmup = 0;    // steps
  int64_t steps = 0;     // of the whole run; cosine and linear need it
  double final = 0;      // fraction of lr at the end
  double reference = 0;  // steps; rsqrt needs it
};

// Throws Error, naming the flag.
void check(const RateSchedule& schedule);
// The rate of step 0, 1, 2, ...
double rate_at(const RateSchedule& schedule, int64_t step);

// EMA of weights: either a fixed decay per step, or (halflife > 0) a half-life in images, which at
// the start of a run is at most `rampup` times the images seen so far, so that the random initial
// weights are soon forgotten (Karras et al. 2022, arXiv:2206.00364).
struct EmaSchedule {
  double decay = 0.999;
  double halflife = 0;  // images
  double rampup = 0;    // 0: none
};

void check(const EmaSchedule& schedule);
// The decay used by step 0, 1, 2, ... of `batch` images each.
double ema_decay_at(const EmaSchedule& schedule, int64_t step, int64_t batch);

}  // namespace ebb::train
