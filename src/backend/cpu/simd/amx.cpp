// Compiled for processors with AMX and what comes with it (CMakeLists.txt).
#include "backend/cpu/simd/amx.h"

#include <immintrin.h>

#include <algorithm>

#include "backend/cpu/simd/levels.h"
#include "backend/cpu/simd/vectors.h"
#include "base/round_up.h"

namespace ebb::cpu {
namespace {

constexpr int64_t kLine = 64;  // bytes of a tile's row, and of a vector

// The first `count` of so many lanes.
template <class Mask>
Mask first(int64_t count) {
  constexpr int64_t most = sizeof(Mask) * 8;
  return static_cast<Mask>((uint64_t{1} << std::clamp<int64_t>(count, 0, most)) - 1);
}

// ---- GEMM ----

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {kLine, kLine, kLine, kLine, kLine, kLine, kLine, kLine};
  uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows,
                      kTileRows, kTileRows, kTileRows, kTileRows};
};

void begin() {
  static constexpr TileConfig config;
  _tile_loadconfig(&config);
}

void end() { _tile_release(); }

// Two rows by two columns of tiles, or one of either. Tiles 0 to 3 are sums, 4 and 5 of a, 6 and 7
// of b.
template <int Rows, int Columns>
void micro(const AmxGemm& g, int64_t i, int64_t j) {
  const uint16_t* const rows = g.a.first + i * g.a.step;
  const uint16_t* b = g.b + j * g.b_step;
  float* const c = g.c + i * kTileRows * g.c_row + j * kLanes;
  const int64_t a_row = g.a.row * 2, c_row = g.c_row * 4;  // bytes
  if (g.accumulate) {
    _tile_loadd(0, c, c_row);
    if constexpr (Columns == 2) _tile_loadd(1, c + kLanes, c_row);
    if constexpr (Rows == 2) _tile_loadd(2, c + kTileRows * g.c_row, c_row);
    if constexpr (Rows * Columns == 4) _tile_loadd(3, c + kTileRows * g.c_row + kLanes, c_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t t = 0; t < g.taps; ++t) {
    const uint16_t* a = g.taps == 1 ? rows : rows + g.shifts[t];
    for (int64_t k = 0; k < g.k; ++k, a += g.a.next, b += kTileSize) {
      _tile_loadd(4, a, a_row);
      _tile_loadd(6, b, kLine);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (Columns == 2) {
        _tile_loadd(7, b + g.b_step, kLine);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (Rows == 2) {
        _tile_loadd(5, a + g.a.step, a_row);
        _tile_dpbf16ps(2, 5, 6);
      }
      if constexpr (Rows * Columns == 4) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_row);
  if constexpr (Columns == 2) _tile_stored(1, c + kLanes, c_row);
  if constexpr (Rows == 2) _tile_stored(2, c + kTileRows * g.c_row, c_row);
  if constexpr (Rows * Columns == 4) _tile_stored(3, c + kTileRows * g.c_row + kLanes, c_row);
}

void gemm(const AmxGemm& g) {
  for (int64_t j = 0; j < g.n; j += 2) {
    const bool two = j + 1 < g.n;
    int64_t i = 0;
    for (; i + 2 <= g.m; i += 2) two ? micro<2, 2>(g, i, j) : micro<2, 1>(g, i, j);
    if (i < g.m) two ? micro<1, 2>(g, i, j) : micro<1, 1>(g, i, j);
  }
}

// ---- softmax ----

// 2^x to 3e-6, much below a rounding to bf16.
__m512 power_of_2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0);  // less the nearest whole number
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(9.570101e-3f), f, _mm512_set1_ps(5.5917863e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4024744e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931218e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999993e-1f));
  return _mm512_scalef_ps(p, _mm512_sub_ps(x, f));
}

// Lanes of two vectors in turn, rounded.
__m512i rounded_in_turn(__m512 even, __m512 odd) {
  alignas(64) static constexpr uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(order),
                                  (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

// Lower bound of a maximum, for columns whose scores are all -infinity so far.
constexpr float kLowest = -0x1.fffffep127f;

// Rescales what was summed before this maximum, if it is another one.
void rescale(const AmxSoftmax& t, int64_t j, __m512 before, __m512 top) {
  if (_mm512_cmp_ps_mask(before, top, _CMP_NEQ_UQ) == 0) return;
  const __m512 factor = power_of_2(_mm512_sub_ps(before, top));
  _mm512_storeu_ps(t.sum + j, _mm512_mul_ps(_mm512_loadu_ps(t.sum + j), factor));
  for (int64_t d = 0; d < t.width; ++d) {
    float* const r = t.result + d * t.result_row + j;
    _mm512_storeu_ps(r, _mm512_mul_ps(_mm512_loadu_ps(r), factor));
  }
}

__m512 largest(const AmxSoftmax& t, int64_t j) {
  __m512 even = _mm512_loadu_ps(t.s + j), odd = even;
  int64_t i = 0;
  for (; i + 2 <= t.keys; i += 2) {
    even = _mm512_max_ps(even, _mm512_loadu_ps(t.s + i * t.s_row + j));
    odd = _mm512_max_ps(odd, _mm512_loadu_ps(t.s + (i + 1) * t.s_row + j));
  }
  if (i < t.keys) even = _mm512_max_ps(even, _mm512_loadu_ps(t.s + i * t.s_row + j));
  return _mm512_max_ps(even, odd);
}

// Columns j to j + 15.
void softmax_columns(const AmxSoftmax& t, int64_t j) {
  const __m512 scale = _mm512_set1_ps(t.factor), before = _mm512_loadu_ps(t.max + j);
  __m512 top = _mm512_max_ps(before, _mm512_mul_ps(largest(t, j), scale));
  _mm512_storeu_ps(t.max + j, top);
  top = _mm512_max_ps(_mm512_set1_ps(kLowest), top);
  rescale(t, j, before, top);
  const float* s = t.s + j;
  uint16_t* p = t.p + j / kLanes * ((t.keys + kTileDepth - 1) / kTileDepth) * kTileSize;
  const auto power = [&](const float* at) {
    return power_of_2(_mm512_fmsub_ps(_mm512_loadu_ps(at), scale, top));
  };
  __m512 sum = _mm512_loadu_ps(t.sum + j), other = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 2 <= t.keys; i += 2, s += 2 * t.s_row, p += kTileDepth) {
    const __m512 even = power(s), odd = power(s + t.s_row);
    sum = _mm512_add_ps(sum, even);
    other = _mm512_add_ps(other, odd);
    _mm512_store_si512(p, rounded_in_turn(even, odd));
  }
  if (i < t.keys) {
    const __m512 last = power(s);
    sum = _mm512_add_ps(sum, last);
    _mm512_store_si512(p, rounded_in_turn(last, _mm512_setzero_ps()));
    i += 2, p += kTileDepth;
  }
  for (; i % kTileDepth != 0; i += 2, p += kTileDepth)
    _mm512_store_si512(p, _mm512_setzero_si512());
  _mm512_storeu_ps(t.sum + j, _mm512_add_ps(sum, other));
}

void softmax(const AmxSoftmax& t) {
  for (int64_t j = 0; j < t.n; j += kLanes) softmax_columns(t, j);
}

// ---- results ----

__m512 widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

void write(const AmxEnd& t) {
  const auto mask = first<__mmask32>(t.columns);
  const __m512 bias = _mm512_loadu_ps(t.bias), more = _mm512_loadu_ps(t.bias + kLanes);
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t pixel = t.pixels[i];
    if (pixel < 0) continue;
    __m512 low = _mm512_add_ps(_mm512_load_ps(t.sums + i * 2 * kLanes), bias);
    __m512 high = _mm512_add_ps(_mm512_load_ps(t.sums + i * 2 * kLanes + kLanes), more);
    if (t.residual) {
      const int64_t row = t.residual_rows == 1 ? pixel : pixel / t.residual_rows;
      const __m512i r = _mm512_maskz_loadu_epi16(mask, t.residual + row * t.step);
      low = _mm512_add_ps(low, widened(_mm512_castsi512_si256(r)));
      high = _mm512_add_ps(high, widened(_mm512_extracti64x4_epi64(r, 1)));
    }
    _mm512_mask_storeu_epi16(t.to + pixel * t.step, mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// ---- packing ----

void pack_left(const AmxPack& t) {
  for (int64_t i = 0; i < t.rows; i += kTileRows)
    for (int64_t j = 0; j < t.width; j += kTileDepth) {
      uint16_t* const to = t.to + i / kTileRows * t.to_step + j / kTileDepth * kTileSize;
      for (int64_t r = 0; r < kTileRows; ++r) {
        const auto mask = i + r < t.rows ? first<__mmask32>(t.width - j) : __mmask32{0};
        _mm512_store_si512(to + r * kTileDepth,
                           _mm512_maskz_loadu_epi16(mask, t.from + (i + r) * t.step + j));
      }
    }
}

// x[r] = numbers j + 2 r and j + 2 r + 1 of each of the rows i to i + 15.
void load_turned(const AmxPack& t, int64_t i, int64_t j, Vec (&x)[kLanes]) {
  const auto mask = first<__mmask16>((t.width - j) / 2);
  for (int64_t r = 0; r < kLanes; ++r)
    x[r] = (Vec)_mm512_maskz_loadu_epi32(i + r < t.rows ? mask : __mmask16{0},
                                         t.from + (i + r) * t.step + j);
  transpose_square(x);
}

void pack_right(const AmxPack& t) {
  for (int64_t i = 0; i < t.rows; i += kTileRows)
    for (int64_t j = 0; j < t.width; j += kTileDepth) {
      uint16_t* const to = t.to + i / kTileRows * t.to_step + j / kTileDepth * kTileSize;
      Vec x[kLanes];
      load_turned(t, i, j, x);
      for (int64_t r = 0; r < kTileRows; ++r)
        _mm512_store_si512(to + r * kTileDepth, (__m512i)x[r]);
    }
}

// Of 16 numbers of 16 bits each.
__m512i joined(__m512i first, __m512i second) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)),
                            _mm512_cvtepi32_epi16(second), 1);
}

void pack_left_transposed(const AmxPack& t) {
  for (int64_t j = 0; j < t.width; j += 2 * kTileRows)
    for (int64_t i = 0; i < t.rows; i += kTileDepth) {
      Vec x[kLanes], y[kLanes];
      load_turned(t, i, j, x);
      load_turned(t, i + kTileRows, j, y);
      for (int64_t r = 0; r < kLanes && j + 2 * r < rounded_up(t.width, kTileRows); ++r) {
        const auto a = (__m512i)x[r], b = (__m512i)y[r];
        const int64_t row = j + 2 * r;
        uint16_t* const to = t.to + row / kTileRows * t.to_step + i / kTileDepth * kTileSize +
                             row % kTileRows * kTileDepth;
        _mm512_store_si512(to, joined(a, b));
        _mm512_store_si512(to + kTileDepth,
                           joined(_mm512_srli_epi32(a, 16), _mm512_srli_epi32(b, 16)));
      }
    }
}

}  // namespace

constinit const AmxKernels amx_v4 = {
    begin, end, gemm, softmax, write, pack_left, pack_left_transposed, pack_right};

}  // namespace ebb::cpu
