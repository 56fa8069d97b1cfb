// How device code reports a wrong input.
#pragma once

#include "backend/cuda/device/device.h"

namespace ebb::cuda {

// The code is written last: a host that sees it sees what belongs to it. Of several reports one
// stays.
__device__ __forceinline__ void report(Fault* fault, FaultCode code, int64_t value, int64_t limit) {
  fault->value = value;
  fault->limit = limit;
  __threadfence_system();
  fault->code = code;
}

}  // namespace ebb::cuda
