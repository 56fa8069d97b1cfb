// The tiles of every level that this machine runs against loops in double.
#include "backend/cpu/simd/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ebb::cpu {
namespace {

std::vector<float> values(int64_t count, float low, float high, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = low + (high - low) * static_cast<float>(seed >> 8) / 16777216.0f;
  }
  return v;
}

void check_product(const TileKernels& tiles, TileGemm t, bool transposed) {
  const auto a = values(t.m * t.k, -1, 1, 1), b = values(t.k * (t.n + 3), -1, 1, 2);
  const auto before = values(t.m * (t.n + 5), -1, 1, 3);
  std::vector<float> c = before;
  t.a = a.data();
  t.a_row = transposed ? 1 : t.k;
  t.a_col = transposed ? t.m : 1;
  t.b = b.data();
  t.b_row = t.n + 3;
  t.c = c.data();
  t.c_row = t.n + 5;
  tiles.gemm(t);
  for (int64_t i = 0; i < t.m; ++i)
    for (int64_t j = 0; j < t.n + 5; ++j) {
      const auto at = static_cast<size_t>(i * t.c_row + j);
      if (j >= t.n) {
        EXPECT_EQ(c[at], before[at]) << "wrote outside at " << i << ',' << j;
        continue;
      }
      double want = t.accumulate ? before[at] : 0;
      for (int64_t k = 0; k < t.k; ++k)
        want += double{t.a[i * t.a_row + k * t.a_col]} * double{t.b[k * t.b_row + j]};
      // Each of k sums rounds a value below k.
      EXPECT_NEAR(c[at], want, 1e-7 * static_cast<double>(t.k + 1)) << i << ',' << j;
    }
}

TEST(tiles, products_of_every_remainder__equal_loops) {
  for (const TileKernels* tiles : all_tile_kernels())
    for (int64_t m = 1; m <= 13; ++m)
      for (const int64_t n : {16, 32, 48, 64, 112}) {
        check_product(*tiles, {.m = m, .n = n, .k = 7}, false);
        check_product(*tiles, {.m = m, .n = n, .k = 1, .accumulate = true}, true);
      }
}

TEST(tiles, product_over_nothing__is_zero_or_what_was_there) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    check_product(*tiles, {.m = 3, .n = 16, .k = 0}, false);
    check_product(*tiles, {.m = 3, .n = 16, .k = 0, .accumulate = true}, false);
  }
}

// Two tiles of a row in sequence, the second one with larger scores.
TEST(tiles, softmax_in_two_tiles__equals_softmax_of_the_row) {
  constexpr int64_t kRows = 3, kTile = 32;
  for (const TileKernels* tiles : all_tile_kernels()) {
    const auto first = values(kRows * kTile, -30, 0, 5), second = values(kRows * kTile, -9, 20, 6);
    std::vector<float> row_max(kRows, -std::numeric_limits<float>::infinity()), sum(kRows, 0.0f);
    std::vector<float> result(kRows * 16, 0.0f);
    for (std::vector<float> s : {first, second}) {
      tiles->softmax(
          {kRows, kTile, s.data(), kTile, row_max.data(), sum.data(), result.data(), 16, 16});
      for (size_t i = 0; i < result.size(); ++i) {  // v = 1 for every key
        for (size_t j = 0; j < kTile; ++j) result[i] += s[i / 16 * kTile + j];
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      double want = 0;
      for (size_t j = 0; j < kTile; ++j)
        want += std::exp2(double{first[r * kTile + j]}) + std::exp2(double{second[r * kTile + j]});
      EXPECT_NEAR(row_max[r] + std::log2(sum[r]), std::log2(want), 2e-6);
      EXPECT_NEAR(result[r * 16] / sum[r], 1, 1e-6);
    }
  }
}

TEST(tiles, softmax_of_not_a_number__stays_one) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    std::vector<float> s(16, 1.0f), result(16, 0.0f);
    s[5] = std::numeric_limits<float>::quiet_NaN();
    float row_max = -std::numeric_limits<float>::infinity(), sum = 0;
    tiles->softmax({1, 16, s.data(), 16, &row_max, &sum, result.data(), 16, 16});
    EXPECT_TRUE(std::isnan(sum));
  }
}

TEST(tiles, softmax_grad__equals_loops) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    const auto s = values(2 * 48, -40, 3, 7), dp = values(2 * 48, -1, 1, 8);
    std::vector<float> p = s, ds = dp;
    const float shift[] = {1.5f, -2.0f}, delta[] = {0.25f, -0.5f};
    tiles->softmax_grad({2, 48, p.data(), ds.data(), 48, shift, delta});
    for (size_t i = 0; i < s.size(); ++i) {
      const double want = std::exp2(double{s[i]} - double{shift[i / 48]});
      EXPECT_NEAR(p[i], want, 4e-6 * want);  // the shifted score rounds at 1e-7 of up to 42
      const double want_ds = want * (double{dp[i]} - double{delta[i / 48]});
      EXPECT_NEAR(ds[i], want_ds, 4e-6 * want * 1.5);
    }
  }
}

}  // namespace
}  // namespace ebb::cpu
