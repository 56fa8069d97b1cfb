// What a step of an edited prompt ([day:night:5]) is in each program.
#pragma once

#include <cstdint>

#include "pipeline/request.h"

namespace ebb {

// 1: a step of the sampler. A1111 counts evaluations instead, where its sampler makes two a step,
// and takes the run to have twice its steps.
int64_t evaluations_counted(const GenerateOptions& options);

}  // namespace ebb
