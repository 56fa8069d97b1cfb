// Activations that kernels apply to what they have in registers.
#pragma once

namespace ebb::cuda {

// x times the logistic function of linear x + cubic x^3: SiLU, and GELU with a tanh.
struct Activation {
  float linear = 1, cubic = 0;
};

}  // namespace ebb::cuda
