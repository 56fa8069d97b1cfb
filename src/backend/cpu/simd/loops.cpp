// Compiled once for each level with EBB_SIMD_LEVEL as the name of its table (CMakeLists.txt).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/simd/levels.h"
#include "backend/cpu/simd/math.h"
#include "backend/cpu/simd/vectors.h"

// No element is written that a later pass of the loop reads.
#ifdef __clang__
#define EBB_VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define EBB_VECTOR_LOOP _Pragma("GCC ivdep")
#endif

namespace ebb::cpu {
namespace {

// An output may be the very memory of an input: each element is read before it is written.
template <class F>
void loop1(float* d, const float* a, int64_t n, F f) {
  EBB_VECTOR_LOOP
  for (int64_t i = 0; i < n; ++i) d[i] = f(a[i]);
}
template <class F>
void loop2(float* d, const float* a, const float* b, int64_t n, F f) {
  EBB_VECTOR_LOOP
  for (int64_t i = 0; i < n; ++i) d[i] = f(a[i], b[i]);
}

template <auto F>
void map1(float* d, const float* a, const float*, const float*, int64_t n) {
  loop1(d, a, n, F);
}
template <auto F>
void map2(float* d, const float* a, const float* b, const float*, int64_t n) {
  loop2(d, a, b, n, F);
}
void map_select(float* d, const float* c, const float* a, const float* b, int64_t n) {
  EBB_VECTOR_LOOP
  for (int64_t i = 0; i < n; ++i) d[i] = c[i] != 0.0f ? a[i] : b[i];
}

constexpr auto add = [](float a, float b) { return a + b; };
constexpr auto sub = [](float a, float b) { return a - b; };
constexpr auto mul = [](float a, float b) { return a * b; };
constexpr auto divide = [](float a, float b) { return a / b; };
constexpr auto minimum = [](float a, float b) { return a < b ? a : b; };
constexpr auto maximum = [](float a, float b) { return a > b ? a : b; };
constexpr auto less = [](float a, float b) { return a < b ? 1.0f : 0.0f; };
constexpr auto negate = [](float a) { return -a; };
constexpr auto root = [](float a) { return std::sqrt(a); };
constexpr auto inverse_root = [](float a) { return 1.0f / std::sqrt(a); };
constexpr auto floor_of = [](float a) { return std::floor(a); };

constexpr uint32_t infinity_bits = 0x7f800000u;

// The bits of the nearest bf16 above its 16 zeros; ties to even.
inline uint32_t nearest_bf16(uint32_t u) {
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return (u & 0x7fffffffu) > infinity_bits ? (u | 0x400000u) & 0xffff0000u : rounded;
}
constexpr auto in_bf16 = [](float a) {
  return std::bit_cast<float>(nearest_bf16(std::bit_cast<uint32_t>(a)));
};
// Ten bits of mantissa, of small numbers as many as are multiples of 2^-24; from 65520 infinity.
constexpr auto in_f16 = [](float a) {
  const uint32_t u = std::bit_cast<uint32_t>(a), sign = u & 0x80000000u, size = u ^ sign;
  const uint32_t rounded = (size + 0xfffu + ((size >> 13) & 1u)) & ~0x1fffu;
  const uint32_t most = 0x477fe000u, least_normal = 0x38800000u;
  const uint32_t normal = size <= infinity_bits && rounded > most ? infinity_bits : rounded;
  constexpr float grid = 0.75f;  // neighbours of it differ by 2^-24
  const float small = (std::bit_cast<float>(size) + grid) - grid;
  const uint32_t kept = size > infinity_bits ? size : normal;
  return std::bit_cast<float>((size < least_normal ? std::bit_cast<uint32_t>(small) : kept) | sign);
};

void fill(float* d, float v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) d[i] = v;
}

void from_bf16(float* d, const uint16_t* s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) d[i] = std::bit_cast<float>(uint32_t{s[i]} << 16);
}

void from_f16(float* d, const uint16_t* s, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(d + i, FromF16::widen(s + i));
  uint16_t rest[kLanes] = {};
  float wide[kLanes];
  std::copy(s + i, s + n, rest);
  store(wide, FromF16::widen(rest));
  std::copy(wide, wide + (n - i), d + i);
}

void to_bf16(uint16_t* d, const float* s, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    d[i] = static_cast<uint16_t>(nearest_bf16(std::bit_cast<uint32_t>(s[i])) >> 16);
  }
}

void add_rows(double* acc, const float* x, int64_t rows, int64_t width) {
  constexpr int64_t tile = 64;
  for (int64_t at = 0; at < width; at += tile) {
    const int64_t n = width - at < tile ? width - at : tile;
    float partial[tile] = {};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) partial[i] += x[r * width + at + i];
    for (int64_t i = 0; i < n; ++i) acc[at + i] += static_cast<double>(partial[i]);
  }
}

void max_rows(double* acc, const float* x, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < width; ++i) {
      const double v = static_cast<double>(x[r * width + i]);
      acc[i] = v > acc[i] ? v : acc[i];
    }
}

// Sums in 32 lanes, which are added in a fixed order.
template <class F>
double lanes(const float* x, int64_t n, F f) {
  constexpr int64_t width = 32;
  float partial[width] = {};
  int64_t i = 0;
  for (; i + width <= n; i += width)
    for (int64_t k = 0; k < width; ++k) partial[k] += f(x[i + k]);
  double total = 0;
  for (; i < n; ++i) total += static_cast<double>(f(x[i]));
  for (int64_t k = 0; k < width; ++k) total += static_cast<double>(partial[k]);
  return total;
}

double sum(const float* x, int64_t n) {
  return lanes(x, n, [](float v) { return v; });
}

double sum_squares(const float* x, float shift, int64_t n) {
  return lanes(x, n, [shift](float v) { return (v - shift) * (v - shift); });
}

double max_of(const float* x, int64_t n) {
  float best = -__builtin_inff();
  for (int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return static_cast<double>(best);
}

void moment_rows(double* s1, double* s2, const float* shift, const float* x, int64_t rows,
                 int64_t width) {
  constexpr int64_t tile = 64;
  for (int64_t at = 0; at < width; at += tile) {
    const int64_t n = width - at < tile ? width - at : tile;
    float p1[tile] = {}, p2[tile] = {};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const float v = x[r * width + at + i] - shift[at + i];
        p1[i] += v;
        p2[i] += v * v;
      }
    for (int64_t i = 0; i < n; ++i) {
      s1[at + i] += static_cast<double>(p1[i]);
      s2[at + i] += static_cast<double>(p2[i]);
    }
  }
}

constexpr Loops make_loops() {
  Loops l{};
  const auto set = [&](ScalarOp op, MapLoop f) { l.map[static_cast<size_t>(op)] = f; };
  set(ScalarOp::add, map2<add>);
  set(ScalarOp::sub, map2<sub>);
  set(ScalarOp::mul, map2<mul>);
  set(ScalarOp::div, map2<divide>);
  set(ScalarOp::min, map2<minimum>);
  set(ScalarOp::max, map2<maximum>);
  set(ScalarOp::less, map2<less>);
  set(ScalarOp::pow, map2<pow_f32>);
  set(ScalarOp::neg, map1<negate>);
  set(ScalarOp::abs, map1<absolute>);
  set(ScalarOp::sqrt, map1<root>);
  set(ScalarOp::rsqrt, map1<inverse_root>);
  set(ScalarOp::exp, map1<exp_f32>);
  set(ScalarOp::log, map1<log_f32>);
  set(ScalarOp::sin, map1<sin_f32>);
  set(ScalarOp::cos, map1<cos_f32>);
  set(ScalarOp::tanh, map1<tanh_f32>);
  set(ScalarOp::sigmoid, map1<sigmoid_f32>);
  set(ScalarOp::erf, map1<erf_f32>);
  set(ScalarOp::floor, map1<floor_of>);
  set(ScalarOp::bf16, map1<in_bf16>);
  set(ScalarOp::f16, map1<in_f16>);
  set(ScalarOp::select, map_select);
  l.fill = fill;
  l.from_bf16 = from_bf16;
  l.from_f16 = from_f16;
  l.to_bf16 = to_bf16;
  l.add_rows = add_rows;
  l.max_rows = max_rows;
  l.sum = sum;
  l.max = max_of;
  l.sum_squares = sum_squares;
  l.moment_rows = moment_rows;
  return l;
}

}  // namespace

// A constant, so that no code of this level runs before it is chosen.
constinit const Loops EBB_SIMD_LEVEL = make_loops();

}  // namespace ebb::cpu
