// Diagnose: where a step first went wrong.
#pragma once

#include <string>

#include "runtime/plan.h"

namespace ebb::train {

// Runs the plan once more and names the first tensor that holds NaN or infinity: an input, a param
// or state, or the result of an op with the model path it came from. "" if all are finite.
// Fit for runs that change nothing, as those of a step with a loss that is not finite.
std::string first_not_finite(Plan& plan, const NamedTensors& inputs);

// Index of the first element that is NaN or infinite, or -1. Host memory of the type.
int64_t find_not_finite(const Type& type, const void* data);

}  // namespace ebb::train
