// run_program, run_step: the one call of a kernel.
#pragma once

#include "runtime/plan.h"

namespace ebb {

// An Error of the kernel, OutOfMemory as such, says which use of an op it was and where in the
// model. A program without work is nothing.
void run_program(const Program& program, const Signature& sig, const Call& call);
inline void run_step(const Step& step) { run_program(step.program, step.sig, step.call); }

}  // namespace ebb
