// Division by a number that the host knows, for host and device code.
#pragma once

#include <cstdint>

namespace ebb::cuda {

struct Divided {
  int quotient, remainder;
};

// n / by for n in [0, 2^31) and by in [1, 2^31), in three instructions for the 20 or more of a
// division (Granlund, Montgomery 1994). A kernel does not divide by 0, which stands for "none".
struct FastDiv {
  int by = 1;
  uint32_t magic = 1, shift = 0;

  FastDiv() = default;
  constexpr explicit FastDiv(int64_t d) : by(static_cast<int>(d)) {
    if (d <= 1) return;
    while ((int64_t{1} << shift) < d) ++shift;
    const uint64_t over = (uint64_t{1} << shift) - static_cast<uint64_t>(d);
    magic = static_cast<uint32_t>((over << 32) / static_cast<uint64_t>(d) + 1);
  }
  constexpr Divided divide(int n) const {
    const auto u = static_cast<uint32_t>(n);
    const auto high = static_cast<uint32_t>(uint64_t{u} * magic >> 32);
    const int q = static_cast<int>((high + u) >> shift);
    return {q, n - q * by};
  }
};

constexpr int64_t divisible = int64_t{1} << 31;  // numbers below this may be divided

}  // namespace ebb::cuda
