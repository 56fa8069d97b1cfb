// Diagnose: finds the first non-finite tensor of a step.
#pragma once

#include <string>

#include "runtime/plan.h"

namespace ebb::train {

// Runs the plan once more and names the first tensor with NaN or infinity: an input, a param or
// state, or the result of an op with its model path. "" if all are finite. For runs that update
// nothing, such as steps with a non-finite loss.
std::string first_not_finite(Plan& plan, const NamedTensors& inputs);

// Index of the first element that is NaN or infinite, or -1. Host memory of the type.
int64_t find_not_finite(const Type& type, const void* data);

}  // namespace ebb::train
