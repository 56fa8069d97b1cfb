// Activations that kernels apply to what they have in registers.
#pragma once

namespace ebb::cuda {

// x times the logistic function of a polynomial of odd powers. Of linear x + cubic x^3: SiLU, and
// GELU with a tanh.
struct Activation {
  float linear = 1, cubic = 0;
  float higher[3] = {};  // of x^5, x^7, x^9; all 0, or the last is not
};

// GELU with an error function: its polynomial is fitted, for results of 16 bits. The error of GELU
// is below 3.3e-5, below 9e-5 of its value where that is positive and below 3e-4 of it down to
// x = -3.
constexpr Activation gelu_in_16_bits = {
    .linear = 1.594948208f,
    .cubic = 7.387350241e-2f,
    .higher = {-5.661568950e-4f, -2.353296645e-5f, 8.240294208e-7f}};

}  // namespace ebb::cuda
