// GEMMs of panels against loops in double, with every mixture of dtypes.
#include "backend/cpu/panel_gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/tensor.h"
#include "support/random_values.h"

namespace ebb::cpu {
namespace {

// Row i of tap t begins at row i + t of a, and rows behind the last one are zeros.
void check(const PanelProblem& p) {
  const Tensor a = test::random_tensor(p.a, {p.m, p.k}, 1),
               w = test::random_tensor(p.weights, {p.n, p.taps, p.k}, 2);
  const Tensor bias = test::random_tensor(p.bias, {p.n}, 3);
  const Tensor residual =
      test::random_tensor(p.residual, {(p.m + p.residual_rows - 1) / p.residual_rows, p.n}, 4);
  const Tensor c(p.c, {p.m, p.n});
  const auto rows = [&](int64_t tap, int64_t begin, int64_t count, const float* first,
                        const float* zeros, const float** to) {
    for (int64_t i = begin + tap; i < begin + tap + count; ++i)
      *to++ = i < p.m ? first + i * p.k : zeros;
  };
  const PanelMatmul product(p, p.m * p.k, rows);
  std::vector<char> scratch(static_cast<size_t>(product.scratch_bytes() + 64));
  void* at = scratch.data();
  size_t room = scratch.size();
  std::align(64, scratch.size() - 64, at, room);
  product.run({a.raw(), w.raw(), bias.raw(), residual.raw(), c.raw(), at});
  const Tensor fa = a.to(DType::f32), fw = w.to(DType::f32), fb = bias.to(DType::f32),
               fr = residual.to(DType::f32), fc = c.to(DType::f32);
  const auto number = [](const Tensor& t, int64_t i) {
    return double{t.span<float>()[static_cast<size_t>(i)]};
  };
  const double relative = p.c == DType::f32 ? 0 : p.c == DType::f16 ? 0x1p-11 : 0x1p-8;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double want = number(fb, j) + number(fr, i / p.residual_rows * p.n + j);
      for (int64_t t = 0; t < p.taps; ++t)
        for (int64_t k = 0; i + t < p.m && k < p.k; ++k)
          want += number(fa, (i + t) * p.k + k) * number(fw, (j * p.taps + t) * p.k + k);
      ASSERT_NEAR(number(fc, i * p.n + j), want, 1e-4 + relative * std::abs(want)) << i << ',' << j;
    }
}

TEST(panel_gemm, every_mixture_of_dtypes__equals_loops) {
  const DType floats[] = {DType::f32, DType::bf16, DType::f16};
  for (const DType a : floats)
    for (const DType weights : floats)
      for (const DType c : floats)
        check({.m = 7,
               .n = 70,
               .k = 37,
               .taps = 3,
               .a = a,
               .weights = weights,
               .c = c,
               .bias = a,
               .residual = c});
}

TEST(panel_gemm, many_rows_and_long_sums__equal_loops) {
  check({.m = 1500, .n = 5, .k = 16, .taps = 2, .residual_rows = 100});
  check({.m = 100, .n = 130, .k = 410, .weights = DType::f16});
  check({.m = 1, .n = 64, .k = 192, .weights = DType::bf16});
}

TEST(panel_gemm, no_rows__is_nothing) { check({.m = 0, .n = 5, .k = 16}); }

}  // namespace
}  // namespace ebb::cpu
