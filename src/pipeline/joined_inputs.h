// What images of several requests are given in one batch: a row each of conditions and of what they
// start from.
#pragma once

#include <span>

#include "pipeline/run_inputs.h"

namespace ebb {

// Whether a batch can have images of both: the same predictions with the same weights, conditions
// of the same names, types and sizes that change at the same steps, and both start alike, from
// noise or from an image. Known regions are of one request.
bool can_join(const RunInputs& a, const RunInputs& b);

// One an image. Throws Error for those that cannot be joined.
RunInputs joined(std::span<const RunInputs* const> images);

}  // namespace ebb
