#include "ops/loop/cuda.h"

namespace ebb::ops::cuda {

std::vector<Kernel> loop() { return {loop_map(), loop_rows(), loop_pixels()}; }

}  // namespace ebb::ops::cuda
