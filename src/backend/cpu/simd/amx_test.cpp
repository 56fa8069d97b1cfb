// Matrix tiles against loops in double.
#include "backend/cpu/simd/amx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/round_up.h"
#include "core/dtype.h"
#include "support/random_values.h"

namespace ebb::cpu {
namespace {

constexpr size_t kAlign = 64;

// Memory on a cache line.
template <class T>
struct Aligned {
  explicit Aligned(int64_t count) : bytes(static_cast<size_t>(count) * sizeof(T) + kAlign) {
    const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes.data()));
    data = reinterpret_cast<T*>(rounded_up(at, int64_t{kAlign}));
  }
  std::vector<unsigned char> bytes;
  T* data;
};

std::vector<uint16_t> values(int64_t count, uint32_t seed) {
  std::vector<uint16_t> v;
  for (const float x : test::random_floats(count, seed)) v.push_back(bf16(x).bits);
  return v;
}

double number(uint16_t bits) {
  bf16 x;
  x.bits = bits;
  return static_cast<float>(x);
}

struct Sizes {
  int64_t m, n, k;
};

// c [m,n] = the sum of a [m,k] and b [n,k], packed; a also from rows of its transpose.
void check_product(const AmxKernels& amx, Sizes z, bool transposed) {
  const auto a = values(z.m * z.k, 1), b = values(z.n * z.k, 2);
  const int64_t deep = rounded_up(z.k, kTileDepth), m = rounded_up(z.m, kTileRows),
                n = rounded_up(z.n, kTileRows);
  const Aligned<uint16_t> left(m * deep), right(n * deep);
  const Aligned<float> c(m * n);
  const AmxPack rows{.rows = z.m, .width = z.k, .from = a.data(), .step = z.k, .to = left.data};
  AmxPack pack = rows;
  pack.to_step = deep * kTileRows;
  if (transposed) {
    pack.rows = z.k, pack.width = pack.step = z.m;
    amx.pack_left_transposed(pack);
  } else {
    amx.pack_left(pack);
  }
  amx.pack_right({z.n, z.k, b.data(), z.k, right.data, deep * kTileRows});
  std::fill_n(c.data, m * n, 0.5f);
  amx.begin();
  amx.gemm({.m = m / kTileRows,
            .n = n / kTileRows,
            .k = deep / kTileDepth,
            .a = {.first = left.data, .step = deep * kTileRows},
            .b = right.data,
            .b_step = deep * kTileRows,
            .c = c.data,
            .c_row = n,
            .accumulate = transposed});
  amx.end();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = transposed ? 0.5 : 0;
      for (int64_t k = 0; i < z.m && j < z.n && k < z.k; ++k)
        want += number(a[static_cast<size_t>(transposed ? k * z.m + i : i * z.k + k)]) *
                number(b[static_cast<size_t>(j * z.k + k)]);
      ASSERT_NEAR(c.data[i * n + j], want, 1e-6 * static_cast<double>(z.k)) << i << ',' << j;
    }
}

TEST(amx, products_of_every_remainder__equal_loops) {
  const AmxKernels* const amx = amx_kernels();
  if (!amx) GTEST_SKIP() << "this machine has no matrix tiles";
  for (const int64_t m : {2, 16, 30, 40, 48})
    for (const int64_t n : {1, 16, 50})
      for (const int64_t k : {2, 32, 40, 96})
        for (const bool transposed : {false, true}) check_product(*amx, {m, n, k}, transposed);
}

// Two tiles of some columns in sequence, the second one with larger scores.
TEST(amx, softmax_in_two_tiles__equals_softmax_of_the_columns) {
  const AmxKernels* const amx = amx_kernels();
  if (!amx) GTEST_SKIP() << "this machine has no matrix tiles";
  constexpr int64_t kKeys = 35, kColumns = 32, kWidth = 3;
  constexpr float kFactor = 0.25f;
  const Aligned<float> scores(kKeys * kColumns);
  const Aligned<uint16_t> p(rounded_up(kKeys, kTileDepth) * kColumns);
  std::fill_n(p.data, rounded_up(kKeys, kTileDepth) * kColumns, uint16_t{0xffff});
  std::vector<float> max(kColumns, -std::numeric_limits<float>::infinity());
  std::vector<float> sum(kColumns, 0.0f), result(kWidth * kColumns, 0.0f);
  std::vector<double> want(kColumns, 0.0);
  for (const int tile : {0, 1}) {
    const auto v = values(kKeys * kColumns, static_cast<uint32_t>(7 + tile));
    for (size_t i = 0; i < v.size(); ++i) {
      scores.data[i] = static_cast<float>(80 * number(v[i]) + 100 * tile);
      want[i % kColumns] += std::exp2(double{kFactor} * scores.data[i]);
    }
    amx->softmax({.keys = kKeys,
                  .n = kColumns,
                  .s = scores.data,
                  .s_row = kColumns,
                  .factor = kFactor,
                  .max = max.data(),
                  .sum = sum.data(),
                  .result = result.data(),
                  .result_row = kColumns,
                  .width = kWidth,
                  .p = p.data});
    for (int64_t c = 0; c < kColumns; ++c)
      for (int64_t i = 0; i < rounded_up(kKeys, kTileDepth); ++i) {
        const int64_t deep = rounded_up(kKeys, kTileDepth) / kTileDepth;
        const double got = number(
            p.data[(c / 16 * deep + i / 32) * kTileSize + i % 32 / 2 * 32 + c % 16 * 2 + i % 2]);
        const double exact =
            i < kKeys ? std::exp2(kFactor * scores.data[i * kColumns + c] - max[size_t(c)]) : 0;
        ASSERT_NEAR(got, exact, 0x1p-8 * exact) << i << ',' << c;
        for (size_t d = 0; d < kWidth; ++d) result[d * kColumns + size_t(c)] += float(got);
      }
  }
  for (size_t c = 0; c < kColumns; ++c) {
    EXPECT_NEAR(max[c] + std::log2(sum[c]), std::log2(want[c]), 1e-5);
    EXPECT_NEAR(result[2 * kColumns + c] / sum[c], 1, 4e-3);
  }
}

}  // namespace
}  // namespace ebb::cpu
