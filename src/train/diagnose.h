// Diagnose: finds the first non-finite tensor of a step.
#pragma once

#include <string>

#include "runtime/plan.h"

namespace ebb::train {

// Names the first tensor with NaN or infinity that a plan is given: an input, a param or a state.
// "" if all are finite.
std::string first_source_not_finite(Plan& plan, const NamedTensors& inputs);
// Runs the plan once more and names the first result of an op with NaN or infinity, with its model
// path. "" if all are finite. For runs that update nothing, such as steps with a non-finite loss;
// of several ranks, all run it.
std::string first_result_not_finite(Plan& plan, const NamedTensors& inputs);

}  // namespace ebb::train
