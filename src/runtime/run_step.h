// run_step: the one call of a kernel.
#pragma once

#include "runtime/plan.h"

namespace ebb {

// An Error of the kernel, OutOfMemory as such, says which op it was and where in the model.
void run_step(const Step& step);

}  // namespace ebb
