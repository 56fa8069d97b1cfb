// RunConditions: the values of a denoiser's conditions over a run, other than classes, for each of
// the predictions that guidance combines.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "diffusion/guidance/guidance.h"
#include "nn/network.h"
#include "runtime/plan.h"

namespace ebb {

// A prediction. The weight is that of a part of a prompt, see Denoiser::weigh().
struct ConditionBranch {
  Branch branch = Branch::cond;
  double weight = 1;
};

// The same for every image, or a row for each. A value may change from step to step (prompt
// editing), its shape not.
struct RunConditions {
  static constexpr int64_t at_the_end = std::numeric_limits<int64_t>::max();
  struct Steps {
    int64_t end_step = 0;  // the values of the steps up to this, counted from 1
    std::vector<NamedTensors>
        branches;  // [1,...], or [batch,...], for each of `branches`, with the same names
    int64_t end_control = at_the_end;  // and up to this, as control networks count steps

    const NamedTensors& values() const { return branches.at(0); }
    const NamedTensors& negative() const { return branches.at(1); }
  };
  // The first two are the condition and the negative one. A run without guidance and
  // with no other branch or weight evaluates the first one only.
  std::vector<ConditionBranch> branches = {{Branch::cond}, {Branch::uncond}};
  // The last one ends at the last step or behind it, and so does the last one of each end_step as
  // control networks count; none: no conditions.
  std::vector<Steps> steps;

  bool by_evaluation = false;  // what end_step counts are the denoiser's evaluations
  // What end_control counts is the step of the evaluation before.
  bool controls_look_back = false;

  bool empty() const { return steps.empty(); }
  // Those of `known` that have values, with their sizes. Throws Error for other names, types and
  // shapes, and where these change during the run.
  std::vector<nn::Condition> conditions(const std::vector<nn::Condition>& known) const;
  // The values of a step, 1 and on, as prompts and as control networks count.
  const Steps& at(int64_t step, int64_t control_step) const;
  // A further condition [1,...] of all steps and branches.
  void add(std::string_view name, const Tensor& value);
  // Those that a run evaluates.
  std::vector<Branch> evaluated(bool guided) const;
  // Of its parts of a prompt.
  std::vector<double> weights() const;
};

// `value` [1,...] for every image of a batch; one that has a row for each stays as it is.
Tensor repeated(const Tensor& value, int64_t batch);

}  // namespace ebb
