// Compiled once for each level with EBB_SIMD_TILES as the name of its table (CMakeLists.txt).
#include "backend/cpu/simd/tiles.h"

#include "backend/cpu/simd/levels.h"

namespace ebb::cpu {
namespace {

// Register tile of the GEMM: rows, and vectors of columns; one more row of vectors is for operands.
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
// In memory: at any address, seen also as plain floats.
using VecAt = float __attribute__((vector_size(kVecBytes), aligned(4), may_alias));

Vec load(const float* p) { return *reinterpret_cast<const VecAt*>(p); }
void store(float* p, Vec v) { *reinterpret_cast<VecAt*>(p) = v; }
Vec all(float x) { return x - Vec{}; }
Vec larger(Vec a, Vec b) { return a < b ? b : a; }

// 2^x to 2e-7, for x < 127; 0 below -126.5.
Vec power_of_2(Vec x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
  const Vec lowest = all(-127.0f);       // whose exponent is that of 0
  x = x < lowest ? lowest : x;           // keeps what is not a number
  const Vec shifted = x + kRound;
  const Vec f = x - (shifted - kRound);
  const VecInt exponent = ((VecInt)shifted - 0x4b400000 + 127) << 23;
  Vec p = f * 1.54035304e-4f + 1.33335581e-3f;  // ln(2)^k / k!, from k = 6 down
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  return p * (Vec)exponent;
}

template <class F>
float fold(Vec v, F&& f) {
  float r = v[0];
  for (int i = 1; i < kLanes; ++i) r = f(r, v[i]);
  return r;
}

// ---- GEMM ----

template <int Rows, int Columns>
void micro(const TileGemm& t, const float* a, const float* b, float* c) {
  Vec sum[Rows][Columns];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j)
      sum[i][j] = t.accumulate ? load(c + i * t.c_row + j * kLanes) : Vec{};
  for (int64_t k = 0; k < t.k; ++k) {
    Vec right[Columns];
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j) right[j] = load(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec left = all(a[i * t.a_row]);
#pragma GCC unroll 16
      for (int j = 0; j < Columns; ++j) sum[i][j] += left * right[j];
    }
    a += t.a_col;
    b += t.b_row;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j) store(c + i * t.c_row + j * kLanes, sum[i][j]);
}

template <int Rows>
void row_group(const TileGemm& t, int64_t i) {
  const float* const a = t.a + i * t.a_row;
  float* const c = t.c + i * t.c_row;
  int64_t j = 0;
  for (; j + kColumns * kLanes <= t.n; j += kColumns * kLanes)
    micro<Rows, kColumns>(t, a, t.b + j, c + j);
  for (; j + 2 * kLanes <= t.n; j += 2 * kLanes) micro<Rows, 2>(t, a, t.b + j, c + j);
  for (; j < t.n; j += kLanes) micro<Rows, 1>(t, a, t.b + j, c + j);
}

template <int Rows>
void last_rows(const TileGemm& t, int64_t i) {
  if (t.m - i == Rows) return row_group<Rows>(t, i);
  if constexpr (Rows > 1) last_rows<Rows - 1>(t, i);
}

void gemm(const TileGemm& t) {
  int64_t i = 0;
  for (; i + kRows <= t.m; i += kRows) row_group<kRows>(t, i);
  if (i < t.m) last_rows<kRows>(t, i);
}

// ---- softmax ----

// Lower bound of row_max, for rows whose scores are all -infinity so far.
constexpr float kLowest = -0x1.fffffep127f;

void softmax(const TileSoftmax& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    float* const s = t.s + i * t.s_row;
    Vec top = load(s);
    for (int64_t j = kLanes; j < t.n; j += kLanes) top = larger(top, load(s + j));
    const float before = t.row_max[i];
    const float row_max = fold(top, [](float a, float b) { return a < b ? b : a; });
    t.row_max[i] = before < row_max ? row_max : before;
    const Vec shift = all(t.row_max[i] < kLowest ? kLowest : t.row_max[i]);
    Vec sum{};
    for (int64_t j = 0; j < t.n; j += kLanes) {
      const Vec p = power_of_2(load(s + j) - shift);
      store(s + j, p);
      sum += p;
    }
    const Vec factor = power_of_2(all(before) - shift);
    t.sum[i] = t.sum[i] * factor[0] + fold(sum, [](float a, float b) { return a + b; });
    if (factor[0] == 1) continue;
    float* const r = t.result + i * t.result_row;
    for (int64_t j = 0; j < t.width; j += kLanes) store(r + j, load(r + j) * factor);
  }
}

void softmax_grad(const TileSoftmaxGrad& t) {
  for (int64_t i = 0; i < t.rows; ++i) {
    float* const s = t.s + i * t.row;
    float* const dp = t.dp + i * t.row;
    const Vec shift = all(t.shift[i]), delta = all(t.delta[i]);
    for (int64_t j = 0; j < t.n; j += kLanes) {
      const Vec p = power_of_2(load(s + j) - shift);
      store(s + j, p);
      store(dp + j, p * (load(dp + j) - delta));
    }
  }
}

}  // namespace

constinit const TileKernels EBB_SIMD_TILES = {gemm, softmax, softmax_grad};

}  // namespace ebb::cpu
