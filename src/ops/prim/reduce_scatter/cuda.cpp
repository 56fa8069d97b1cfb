#include "ops/prim/collective.h"

namespace ebb::ops::cuda {

std::vector<Kernel> reduce_scatter() {
  return collective_kernels<&Communicator::reduce_scatter>("reduce_scatter", false);
}

}  // namespace ebb::ops::cuda
