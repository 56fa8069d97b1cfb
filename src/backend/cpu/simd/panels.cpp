// Compiled once for each level with EBB_SIMD_PANELS as the name of its table (CMakeLists.txt).
#include "backend/cpu/simd/panels.h"

#include "backend/cpu/simd/levels.h"
#include "backend/cpu/simd/vectors.h"

namespace ebb::cpu {
namespace {

// ---- packing ----

// kLanes columns from `rows` rows of weights, from their element `begin` on; `count` elements.
template <class From>
void pack_square(const PanelPack& p, int64_t column, int64_t begin, int64_t count) {
  using Stored = typename From::Stored;
  const auto* const from = static_cast<const Stored*>(p.from) + column * p.row + begin;
  Vec x[kLanes];
  if (count == kLanes && column + kLanes <= p.columns) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) x[i] = From::widen(from + i * p.row);
  } else {
    for (int i = 0; i < kLanes; ++i) {
      Stored part[kLanes] = {};
      for (int64_t j = 0; column + i < p.columns && j < count; ++j) part[j] = from[i * p.row + j];
      x[i] = From::widen(part);
    }
  }
  transpose_square(x);
  float* const to = p.to + begin * kPanelColumns + column;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if (i < count) store(to + i * kPanelColumns, x[i]);
}

template <class From>
void pack(const PanelPack& p) {
  for (int64_t column = 0; column < kPanelColumns; column += kLanes) {
    int64_t begin = 0;
    for (; begin + kLanes <= p.k; begin += kLanes) pack_square<From>(p, column, begin, kLanes);
    if (begin < p.k) pack_square<From>(p, column, begin, p.k - begin);
  }
}

// ---- GEMM ----

constexpr int64_t kLine = 16;  // floats of a line of the caches

// Prefetches the rows `next`, which the next call multiplies.
template <int Rows, int Columns>
void micro(const PanelGemm& g, const float* const* rows, const float* const* next, int64_t column,
           float* c) {
  const float* a[Rows];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) a[i] = rows[i] + g.offset;
  const float* b = g.panel + column;
  Vec sum[Rows][Columns];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j) sum[i][j] = Vec{};
  for (int64_t line = 0; line < g.k; line += kLine) {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) __builtin_prefetch(next[i] + g.offset + line);
    const int64_t end = line + kLine < g.k ? line + kLine : g.k;
    for (int64_t k = line; k < end; ++k, b += kPanelColumns) {
      Vec right[Columns];
#pragma GCC unroll 16
      for (int j = 0; j < Columns; ++j) right[j] = load(b + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vec left = all(a[i][k]);
#pragma GCC unroll 16
        for (int j = 0; j < Columns; ++j) sum[i][j] += left * right[j];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Columns; ++j) {
      float* const at = c + i * kPanelColumns + j * kLanes;
      store(at, load(at) + sum[i][j]);  // sums of sums round less than one long sum
    }
}

template <int Rows>
void row_group(const PanelGemm& g, int64_t i) {
  float* const c = g.c + i * kPanelColumns;
  const float* const* const rows = g.a + i;
  const float* const* const next = i + 2 * Rows <= g.m ? rows + Rows : rows;
  int64_t j = 0;
  for (; j + kColumns * kLanes <= g.columns; j += kColumns * kLanes)
    micro<Rows, kColumns>(g, rows, next, j, c + j);
  for (; j < g.columns; j += kLanes) micro<Rows, 1>(g, rows, next, j, c + j);
}

template <int Rows>
void last_rows(const PanelGemm& g, int64_t i) {
  if (g.m - i == Rows) return row_group<Rows>(g, i);
  if constexpr (Rows > 1) last_rows<Rows - 1>(g, i);
}

void gemm(const PanelGemm& g) {
  int64_t i = 0;
  for (; i + kRows <= g.m; i += kRows) row_group<kRows>(g, i);
  if (i < g.m) last_rows<kRows>(g, i);
}

}  // namespace

constinit const PanelKernels EBB_SIMD_PANELS = {gemm, pack<FromF32>, pack<FromBf16>, pack<FromF16>};

}  // namespace ebb::cpu
