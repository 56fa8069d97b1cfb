#include "ops/prim/collective.h"

namespace ebb::ops::cpu {

std::vector<Kernel> all_gather() {
  return collective_kernels<&Communicator::all_gather>("all_gather", false);
}

}  // namespace ebb::ops::cpu
