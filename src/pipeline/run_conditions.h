// RunConditions: the values of a denoiser's conditions over a run, other than classes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/network.h"
#include "runtime/plan.h"

namespace ebb {

// The same for every image. A value may change from step to step (prompt editing), its shape not.
struct RunConditions {
  struct Steps {
    int64_t end_step = 0;           // the values of the steps up to this, counted from 1
    NamedTensors values, negative;  // [1,...] of both branches of guidance, with the same names
  };
  std::vector<Steps> steps;  // the last one ends at the last step or behind it; none: no conditions

  bool empty() const { return steps.empty(); }
  // Those of `known` that have values, with their sizes. Throws Error for other names, types and
  // shapes, and where these change during the run.
  std::vector<nn::Condition> conditions(const std::vector<nn::Condition>& known) const;
  // The values of a step, 1 and on.
  const Steps& at(int64_t step) const;
  // A further condition [1,...] of all steps and both branches.
  void add(std::string_view name, const Tensor& value);
};

// `value` [1,...] for every image of a batch.
Tensor repeated(const Tensor& value, int64_t batch);

}  // namespace ebb
