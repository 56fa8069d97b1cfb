#include "ops/prim/collective.h"

namespace ebb::ops::cpu {

std::vector<Kernel> all_reduce() {
  return collective_kernels<&Communicator::all_reduce>("all_reduce", true);
}

}  // namespace ebb::ops::cpu
