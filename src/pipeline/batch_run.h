// A batch of a run, from its first state to its last: by one denoiser, or by several, one after the
// other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "diffusion/denoiser.h"
#include "pipeline/request.h"
#include "pipeline/run_inputs.h"

namespace ebb {

// Which step of its conditions a run is at.
class RunClock {
 public:
  explicit RunClock(const RunInputs& inputs)
      : step_(inputs.first_step + 1), evaluation_(inputs.first_evaluation) {}

  void begin_evaluation() {
    ++evaluation_;
    before_ = std::exchange(evaluated_, step_);
  }
  void end_step() { ++step_; }
  // Of the evaluation that has begun.
  const RunConditions::Steps& of(const RunConditions& c) const {
    return c.at(c.by_evaluation ? evaluation_ : step_,
                c.controls_look_back ? std::max<int64_t>(before_, 1) : step_);
  }

 private:
  int64_t step_, evaluation_;           // 1 and on
  int64_t evaluated_ = 0, before_ = 0;  // the steps of this evaluation and of the one before
};

// What evaluates, and what it is given.
struct Evaluator {
  Denoiser* denoiser;
  const ResolvedRequest* request;
  const RunInputs* inputs;
};
// From an evaluation on; none: the one before.
using NextEvaluator = std::function<std::optional<Evaluator>(const RunClock& now, double sigma)>;

using BatchProgress = std::function<bool(const Progress&)>;

// The state in which the images from `first` on end.
State run_batch(Denoiser& d, const ResolvedRequest& r, const RunInputs& inputs, int64_t first,
                const BatchProgress& progress);
// The same with vectors in host memory and whatever evaluates; counts the evaluations.
State run_switching(const NextEvaluator& next, const ResolvedRequest& r, const RunInputs& inputs,
                    int64_t first, const BatchProgress& progress, int64_t& evaluations);

// The first images of a batch, f32 [n,h,w,c].
Tensor images_of(const State& x, const ResolvedRequest& r, int64_t first);

}  // namespace ebb
