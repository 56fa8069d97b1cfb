// conv2d with few channels in or out, as a GEMM on sm_90a and a pass that moves its operands or
// results.
#pragma once

#include <vector>

#include "ir/kernel.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_im2col();  // few channels in
std::vector<Kernel> conv2d_col2im();  // few channels out

}  // namespace ebb::ops::cuda
