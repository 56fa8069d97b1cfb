// run_program, run_step: the one call of a kernel; and what must hold of its memory.
#pragma once

#include "runtime/plan.h"

namespace ebb {

// An Error of the kernel, OutOfMemory and DeviceLost as such, says which use of an op it was and
// where in the model. A program without work is nothing.
void run_program(const Program& program, const Signature& sig, const Call& call);
inline void run_step(const Step& step) { run_program(step.program, step.sig, step.call); }

// Throws Error unless `p` lies at a multiple of `alignment` bytes; of `what`, with `behind` at the
// end.
void require_aligned(std::string_view what, const void* p, int64_t alignment,
                     std::string_view behind = "");

}  // namespace ebb
