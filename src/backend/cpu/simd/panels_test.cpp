// The panels of every level that this machine runs against loops in double.
#include "backend/cpu/simd/panels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "support/random_values.h"

namespace ebb::cpu {
namespace {

// Every number of 16 bits, in rows of 64 and packed by `pack`.
template <class T>
void check_widening(void (*pack)(const PanelPack&)) {
  std::vector<T> from(65536);
  for (size_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(i);
  std::vector<float> panel(from.size());
  for (int64_t row = 0; row < 1024; row += kPanelColumns)
    pack({kPanelColumns, 64, from.data() + row * 64, 64, panel.data() + row * 64});
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t row = i / 64, k = i % 64;
    const float got = panel[row / 64 * 4096 + k * 64 + row % 64];
    const auto want = static_cast<float>(from[i]);
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(got)) << i;
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << i;
  }
}

TEST(panels, every_number_of_16_bits__is_widened_exactly) {
  for (const PanelKernels* kernels : all_panel_kernels()) {
    check_widening<f16>(kernels->pack_f16);
    check_widening<bf16>(kernels->pack_bf16);
  }
}

TEST(panels, weights_of_every_remainder__are_transposed_and_padded_with_zeros) {
  for (const PanelKernels* kernels : all_panel_kernels())
    for (const int64_t columns : {1, 15, 16, 40, 64})
      for (const int64_t k : {1, 15, 16, 37}) {
        const auto from = test::random_floats(columns * (k + 3), 1);
        std::vector<float> to(static_cast<size_t>((k + 1) * kPanelColumns), 7.0f);
        kernels->pack_f32({columns, k, from.data(), k + 3, to.data()});
        for (int64_t i = 0; i <= k; ++i)
          for (int64_t j = 0; j < kPanelColumns; ++j)
            EXPECT_EQ(to[static_cast<size_t>(i * kPanelColumns + j)],
                      i == k        ? 7.0f
                      : j < columns ? from[static_cast<size_t>(j * (k + 3) + i)]
                                    : 0.0f);
      }
}

TEST(panels, products_of_every_remainder__equal_loops) {
  constexpr int64_t kInner = 9;
  for (const PanelKernels* kernels : all_panel_kernels())
    for (int64_t m = 1; m <= 13; ++m)
      for (const int64_t columns : {1, 16, 20, 50, 64}) {
        const auto a = test::random_floats((m + 1) * 11, 2),
                   panel = test::random_floats(kInner * kPanelColumns, 3);
        const auto before = test::random_floats(m * kPanelColumns, 4);
        std::vector<float> c = before;
        std::vector<const float*> rows;  // backwards
        for (int64_t i = 0; i < m; ++i) rows.push_back(a.data() + (m - 1 - i) * 11);
        kernels->gemm({m, kInner, columns, rows.data(), 2, panel.data(), c.data()});
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < columns; ++j) {
            double want = before[static_cast<size_t>(i * kPanelColumns + j)];
            for (int64_t k = 0; k < kInner; ++k)
              want += double{rows[static_cast<size_t>(i)][k + 2]} *
                      double{panel[static_cast<size_t>(k * kPanelColumns + j)]};
            EXPECT_NEAR(c[static_cast<size_t>(i * kPanelColumns + j)], want, 1e-6);
          }
      }
}

}  // namespace
}  // namespace ebb::cpu
