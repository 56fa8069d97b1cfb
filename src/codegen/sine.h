// Sine and cosine in f32 arithmetic and integers.
#pragma once

#include <initializer_list>

#include "codegen/builder.h"

namespace ebb::codegen {

// sin(x + quarters pi/2), NaN for infinities. Any size of x.
F32 sine(F32 x, int quarters);

// Horner's rule; the highest coefficient first.
F32 polynomial(F32 x, std::initializer_list<float> coefficients);

}  // namespace ebb::codegen
