// Division by a number that only the host knows, as a multiplication: on the host, in CUDA kernels
// and, by its fields, in generated code (src/codegen/index.h).
#pragma once

#include <bit>
#include <cstdint>

#include "base/error.h"

namespace ebb {

constexpr int64_t divisible = int64_t{1} << 31;  // numbers below this may be divided

struct Divided {
  int quotient, remainder;
};

// n / by for n and by below 2^31: 2 n multiplier / 2^32 >> shift, three instructions for the 20 or
// more of a division (Granlund, Montgomery 1994). By 0 stands for "none": nothing divides by it.
struct FastDiv {
  int by = 1;
  uint32_t multiplier = (uint32_t{1} << 31) + 1, shift = 0;

  FastDiv() = default;
  constexpr explicit FastDiv(int64_t d) : by(static_cast<int>(d)) {
#ifndef __CUDA_ARCH__  // kernels make divisors of numbers that the host has checked
    if (d < 0 || d >= divisible) fail("divisor: must be below 2^31 and not negative (got ", d, ")");
#endif
    if (d <= 1) return;
    shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(d - 1)));
    multiplier =
        static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(d) + 1);
  }
  constexpr Divided divide(int n) const {
    const uint32_t twice = 2 * static_cast<uint32_t>(n);
    const auto high = static_cast<uint32_t>(uint64_t{twice} * multiplier >> 32);
    const int q = static_cast<int>(high >> shift);
    return {q, n - q * by};
  }
};

}  // namespace ebb
