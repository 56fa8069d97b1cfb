// Compiled once for each level with EBB_SIMD_TILES as the name of its table (CMakeLists.txt).
#include "backend/cpu/simd/tiles.h"

#include "backend/cpu/simd/levels.h"
#include "backend/cpu/simd/vectors.h"

namespace ebb::cpu {
namespace {

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

// Lower bound of a maximum, for columns whose scores are all -infinity so far.
constexpr float kLowest = -0x1.fffffep127f;

// Columns from j on.
template <int Columns>
void softmax_columns(const TileSoftmax& t, int64_t j) {
  Vec top[Columns], sum[Columns], factor[Columns];
  for (int c = 0; c < Columns; ++c) top[c] = load(t.max + j + c * kLanes);
  for (int64_t i = 0; i < t.keys; ++i)
    for (int c = 0; c < Columns; ++c)
      top[c] = larger(top[c], load(t.s + i * t.s_row + j + c * kLanes));
  for (int c = 0; c < Columns; ++c) {
    const Vec before = load(t.max + j + c * kLanes);
    store(t.max + j + c * kLanes, top[c]);
    top[c] = larger(top[c], all(kLowest));
    factor[c] = power_of_2(before - top[c]);
    sum[c] = Vec{};
  }
  for (int64_t i = 0; i < t.keys; ++i)
    for (int c = 0; c < Columns; ++c) {
      float* const s = t.s + i * t.s_row + j + c * kLanes;
      const Vec p = power_of_2(load(s) - top[c]);
      store(s, p);
      sum[c] += p;
    }
  for (int c = 0; c < Columns; ++c) {
    float* const at = t.sum + j + c * kLanes;
    store(at, load(at) * factor[c] + sum[c]);
  }
  for (int64_t d = 0; d < t.width; ++d)
    for (int c = 0; c < Columns; ++c) {
      float* const r = t.result + d * t.result_row + j + c * kLanes;
      store(r, load(r) * factor[c]);
    }
}

void softmax(const TileSoftmax& t) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= t.n; j += 2 * kLanes) softmax_columns<2>(t, j);
  for (; j < t.n; j += kLanes) softmax_columns<1>(t, j);
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

// ---- transposition ----

void transpose_square(const float* from, int64_t from_row, float* to, int64_t to_row) {
  Vec x[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) x[i] = load(from + i * from_row);
  transpose_square(x);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(to + i * to_row, x[i]);
}

void transpose(const TileTranspose& t) {
  const int64_t rows = t.rows / kLanes * kLanes, columns = t.columns / kLanes * kLanes;
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t j = 0; j < columns; j += kLanes)
      transpose_square(t.from + i * t.from_row + j, t.from_row, t.to + j * t.to_row + i, t.to_row);
  for (int64_t j = 0; j < t.columns; ++j)
    for (int64_t i = j < columns ? rows : 0; i < t.rows; ++i)
      t.to[j * t.to_row + i] = t.from[i * t.from_row + j];
}

}  // namespace

constinit const TileKernels EBB_SIMD_TILES = {gemm, softmax, softmax_grad, transpose};

}  // namespace ebb::cpu
