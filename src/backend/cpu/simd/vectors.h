// Vectors of f32 as wide as the level has them, for what is compiled once a level.
#pragma once

#include <cstdint>
#include <utility>

namespace ebb::cpu {
namespace {

// Register tile of a GEMM: rows, and vectors of columns; one more row of vectors is for operands.
#if defined(__AVX512F__)
constexpr int kVecBytes = 64, kRows = 6, kColumns = 4;  // of 32 registers
#elif defined(__AVX2__)
constexpr int kVecBytes = 32, kRows = 6, kColumns = 2;  // of 16 registers
#else
constexpr int kVecBytes = 16, kRows = 4, kColumns = 2;  // of 16 registers, no fused multiply-add
#endif

constexpr int kLanes = kVecBytes / 4;
using Vec = float __attribute__((vector_size(kVecBytes)));
using VecInt = int32_t __attribute__((vector_size(kVecBytes)));
// In memory: at any address, seen also as plain floats. Clang takes no alignment in `using`.
typedef float VecAt __attribute__((vector_size(kVecBytes), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const VecAt*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecAt*>(p) = v; }
inline Vec all(float x) { return x - Vec{}; }
inline Vec larger(Vec a, Vec b) { return a < b ? b : a; }

using VecWord = uint32_t __attribute__((vector_size(kVecBytes)));
using HalfVec = uint16_t __attribute__((vector_size(kVecBytes / 2)));
typedef uint16_t HalfVecAt __attribute__((vector_size(kVecBytes / 2), aligned(2), may_alias));

inline VecWord load_words(const void* p) {
  return __builtin_convertvector(HalfVec(*static_cast<const HalfVecAt*>(p)), VecWord);
}

// Functors that widen kLanes numbers.
struct FromF32 {
  using Stored = float;
  static Vec widen(const void* p) { return load(static_cast<const float*>(p)); }
};
struct FromBf16 {
  using Stored = uint16_t;
  static Vec widen(const void* p) { return (Vec)(load_words(p) << 16); }
};
// Exact, of subnormals too: those are whole numbers of 2^-24.
struct FromF16 {
  using Stored = uint16_t;
  static Vec widen(const void* p) {
    const VecWord bits = load_words(p), magnitude = bits & 0x7fffu;
    const VecWord normal = (magnitude << 13) + (112u << 23);
    const VecWord special = (magnitude << 13) | (255u << 23);
    const Vec small = __builtin_convertvector((VecInt)magnitude, Vec) * 0x1p-24f;
    const VecWord wide = magnitude < 0x400u    ? (VecWord)small
                         : magnitude < 0x7c00u ? normal
                                               : special;
    return (Vec)(wide | (bits & 0x8000u) << 16);
  }
};

// Lanes of two vectors in turn, from lane kFirst on; the last argument: 0, 1, ... kLanes - 1.
template <int kFirst, int... kLane>
inline Vec in_turn(Vec a, Vec b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, (kFirst + kLane / 2 + kLane % 2 * kLanes)...);
}

// A square of kLanes rows changes rows and columns: interleaving row i with row i + kLanes / 2
// rotates the index of an element by one bit, log2(kLanes) rounds exchange its halves.
inline void transpose_square(Vec (&x)[kLanes]) {
  constexpr std::make_integer_sequence<int, kLanes> lanes;
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vec y[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      y[2 * i] = in_turn<0>(x[i], x[i + kLanes / 2], lanes);
      y[2 * i + 1] = in_turn<kLanes / 2>(x[i], x[i + kLanes / 2], lanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) x[i] = y[i];
  }
}

}  // namespace
}  // namespace ebb::cpu
