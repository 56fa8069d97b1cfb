// The tiles of every level that this machine runs against loops in double.
#include "backend/cpu/simd/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/random_values.h"

namespace ebb::cpu {
namespace {

void check_product(const TileKernels& tiles, TileGemm t, bool transposed) {
  const auto a = test::random_floats(t.m * t.k, 1), b = test::random_floats(t.k * (t.n + 3), 2);
  const auto before = test::random_floats(t.m * (t.n + 5), 3);
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

// Two tiles of some columns in sequence, the second one with larger scores.
TEST(tiles, softmax_in_two_tiles__equals_softmax_of_the_columns) {
  constexpr int64_t kKeys = 9, kRow = 50, kWidth = 3;
  for (const TileKernels* tiles : all_tile_kernels())
    for (const size_t n : {16, 32, 48}) {
      const auto first = test::random_floats(kKeys * kRow, 5, -30, 0),
                 second = test::random_floats(kKeys * kRow, 6, -9, 20);
      std::vector<float> max(n, -std::numeric_limits<float>::infinity()), sum(n, 0.0f);
      std::vector<float> result(kWidth * n, 0.0f);
      for (std::vector<float> s : {first, second}) {
        const auto columns = static_cast<int64_t>(n);
        tiles->softmax({kKeys, columns, s.data(), kRow, max.data(), sum.data(), result.data(),
                        columns, kWidth});
        for (size_t i = 0; i < result.size(); ++i)  // v = 1 for every key
          for (size_t j = 0; j < kKeys; ++j) result[i] += s[j * kRow + i % n];
      }
      for (size_t c = 0; c < n; ++c) {
        double want = 0;
        for (size_t j = 0; j < kKeys; ++j)
          want += std::exp2(double{first[j * kRow + c]}) + std::exp2(double{second[j * kRow + c]});
        EXPECT_NEAR(max[c] + std::log2(sum[c]), std::log2(want), 2e-6);
        for (size_t d = 0; d < kWidth; ++d) EXPECT_NEAR(result[d * n + c] / sum[c], 1, 1e-6);
      }
    }
}

TEST(tiles, softmax_of_a_masked_column__is_nothing) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    const float none = -std::numeric_limits<float>::infinity();
    std::vector<float> s(32, none), max(16, none), sum(16, 0.0f), result(16, 0.0f);
    s[3] = 2.0f;
    tiles->softmax({2, 16, s.data(), 16, max.data(), sum.data(), result.data(), 16, 1});
    for (size_t c = 0; c < 16; ++c) EXPECT_EQ(sum[c], c == 3 ? 1.0f : 0.0f);
    EXPECT_EQ(s[3], 1.0f);
    EXPECT_EQ(s[4], 0.0f);
  }
}

TEST(tiles, softmax_of_not_a_number__stays_one) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    std::vector<float> s(32, 1.0f), result(16, 0.0f), sum(16, 0.0f);
    s[5] = s[16 + 6] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> max(16, -std::numeric_limits<float>::infinity());
    tiles->softmax({2, 16, s.data(), 16, max.data(), sum.data(), result.data(), 16, 1});
    for (size_t c = 0; c < 16; ++c) EXPECT_EQ(std::isnan(sum[c]), c == 5 || c == 6) << c;
  }
}

TEST(tiles, transpose_of_any_size__equals_loops) {
  for (const TileKernels* tiles : all_tile_kernels())
    for (const int64_t rows : {1, 16, 40, 64})
      for (const int64_t columns : {1, 15, 16, 33}) {
        const auto from = test::random_floats(rows * (columns + 2), 9);
        std::vector<float> to(static_cast<size_t>(columns * (rows + 3)), 7.0f);
        tiles->transpose({rows, columns, from.data(), columns + 2, to.data(), rows + 3});
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t i = 0; i < rows + 3; ++i)
            EXPECT_EQ(to[static_cast<size_t>(j * (rows + 3) + i)],
                      i < rows ? from[static_cast<size_t>(i * (columns + 2) + j)] : 7.0f);
      }
}

TEST(tiles, softmax_grad__equals_loops) {
  for (const TileKernels* tiles : all_tile_kernels()) {
    const auto s = test::random_floats(2 * 48, 7, -40, 3), dp = test::random_floats(2 * 48, 8);
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
