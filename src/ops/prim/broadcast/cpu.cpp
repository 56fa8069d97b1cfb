#include "ops/prim/collective.h"

namespace ebb::ops::cpu {

std::vector<Kernel> broadcast() {
  return collective_kernels<&Communicator::broadcast>("broadcast", true);
}

}  // namespace ebb::ops::cpu
