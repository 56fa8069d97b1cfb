// GEMMs and convolutions on matrix tiles against loops in double.
#include "backend/cpu/amx_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/simd/amx.h"
#include "core/tensor.h"
#include "support/random_values.h"

namespace ebb::cpu {
namespace {

std::vector<double> numbers(const Tensor& t) {
  const Tensor f = t.to(DType::f32);
  return {f.span<float>().begin(), f.span<float>().end()};
}

struct Operands {
  Tensor a, weights, bias, residual;
};

Operands operands(const AmxProblem& p) {
  const int64_t pixels = p.images * p.out_h() * p.out_w();
  return {
      test::random_tensor(DType::bf16, {p.images, p.h, p.w, p.k}, 1),
      test::random_tensor(DType::bf16, {p.o, p.kh, p.kw, p.k}, 2),
      test::random_tensor(p.bias, {p.o}, 3),
      test::random_tensor(DType::bf16, {(pixels + p.residual_rows - 1) / p.residual_rows, p.o}, 4)};
}

// The sum of products of one number of the result.
double products(const AmxProblem& p, const std::vector<double>& a, const std::vector<double>& w,
                int64_t pixel, int64_t o) {
  const int64_t q = pixel % p.out_w(), y = pixel / p.out_w() % p.out_h();
  const int64_t n = pixel / (p.out_w() * p.out_h());
  double sum = 0;
  for (int64_t r = 0; r < p.kh; ++r)
    for (int64_t s = 0; s < p.kw; ++s) {
      const int64_t row = y * p.stride - p.top + r, column = q * p.stride - p.left + s;
      if (row < 0 || row >= p.h || column < 0 || column >= p.w) continue;
      for (int64_t k = 0; k < p.k; ++k)
        sum += a[static_cast<size_t>(((n * p.h + row) * p.w + column) * p.k + k)] *
               w[static_cast<size_t>(((o * p.kh + r) * p.kw + s) * p.k + k)];
    }
  return sum;
}

class amx_gemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!amx_kernels()) GTEST_SKIP() << "this machine has no matrix tiles";
  }
};

// Memory of `bytes` that begins behind a multiple of 64, as far from the next one as it can, so
// that what is rounded up reaches to the end; behind it are bytes that must not change.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), all_(bytes_ + 3 * line) {
    const auto at = reinterpret_cast<uintptr_t>(all_.data());
    first_ = (at + line - 1) / line * line - at + 1;
    std::ranges::fill(all_, value);
  }
  void* data() { return all_.data() + first_; }
  bool is_kept() const {
    const auto kept = [](unsigned char c) { return c == value; };
    const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(first_);
    return std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), all_.end(), kept) &&
           std::all_of(all_.begin(), begin, kept);
  }

 private:
  static constexpr size_t line = 64;
  static constexpr unsigned char value = 0xff;
  size_t bytes_, first_ = 0;
  std::vector<unsigned char> all_;
};

// Behind the result and the scratch memory nothing may change.
void check(const AmxProblem& p) {
  ASSERT_TRUE(amx_takes(p));
  const Operands in = operands(p);
  const int64_t pixels = p.images * p.out_h() * p.out_w(), guard = 32;
  const Tensor c = test::random_tensor(DType::bf16, {pixels * p.o + guard}, 5),
               before = c.to(DType::f32);
  const AmxMatmul product(p);
  Guarded scratch(product.scratch_bytes());
  product.run(
      {in.a.raw(), in.weights.raw(), in.bias.raw(), in.residual.raw(), c.raw(), scratch.data()});
  ASSERT_TRUE(scratch.is_kept());
  const auto a = numbers(in.a), w = numbers(in.weights), bias = numbers(in.bias),
             residual = numbers(in.residual), got = numbers(c), old = numbers(before);
  for (int64_t i = 0; i < pixels; ++i)
    for (int64_t o = 0; o < p.o; ++o) {
      const double want = products(p, a, w, i, o) + bias[static_cast<size_t>(o)] +
                          residual[static_cast<size_t>(i / p.residual_rows * p.o + o)];
      ASSERT_NEAR(got[static_cast<size_t>(i * p.o + o)], want, 1e-4 + 0x1p-8 * std::abs(want))
          << "pixel " << i << ", column " << o;
    }
  for (size_t i = static_cast<size_t>(pixels * p.o); i < got.size(); ++i) ASSERT_EQ(got[i], old[i]);
}

TEST_F(amx_gemm, matmuls_of_every_remainder__equal_loops) {
  for (const int64_t m : {1, 15, 16, 33, 100})
    for (const int64_t o : {1, 16, 17, 70}) check({.w = m, .k = 64, .o = o});
  for (const int64_t k : {16, 30, 32, 34, 420, 800}) check({.w = 32, .k = k, .o = 40});
}

TEST_F(amx_gemm, rows_in_place_and_rows_of_a_residual__equal_loops) {
  check({.w = 1920, .k = 32, .o = 35, .residual_rows = 960});
  check({.w = 64, .k = 96, .o = 64, .bias = DType::bf16});
}

TEST_F(amx_gemm, convolutions__equal_loops) {
  AmxProblem p{.images = 2, .h = 9, .w = 20, .k = 40, .o = 35, .kh = 3, .kw = 3};
  p.top = p.left = p.bottom = p.right = 1;
  check(p);
  p.stride = 2;
  check(p);
  p.h = p.w = 8;
  check(p);
  p.top = p.left = 0;  // more on one side
  check(p);
  p.images = 3, p.stride = 1, p.kh = 1, p.kw = 5, p.left = 3, p.right = 0, p.top = 2, p.bottom = 0;
  check(p);
  check({.images = 2, .h = 5, .w = 6, .k = 400, .o = 8, .kh = 2, .kw = 2});
  check({.images = 2, .h = 6, .w = 6, .k = 16, .o = 8, .stride = 3});
}

// A row of the residual for each image, for each row of one, and across both.
TEST_F(amx_gemm, rows_of_a_residual_of_convolutions__equal_loops) {
  AmxProblem p{.images = 3, .h = 7, .w = 18, .k = 40, .o = 35, .kh = 3, .kw = 3};
  p.top = p.left = p.bottom = p.right = 1;
  for (const int64_t rows : {7 * 18, 18, 16, 5}) {
    p.residual_rows = rows;
    check(p);
  }
  p.stride = 2, p.residual_rows = p.out_h() * p.out_w();
  check(p);
}

TEST_F(amx_gemm, no_rows__is_nothing) { check({.w = 0, .k = 16, .o = 5}); }

// Infinity times the zeros that pad a tile would be not a number.
TEST_F(amx_gemm, infinity__stays_in_its_row) {
  const AmxProblem p{.w = 20, .k = 34, .o = 3};
  ASSERT_TRUE(amx_takes(p));
  Tensor a(DType::f32, {20, 34});
  std::ranges::fill(a.span<float>(), 1.0f);
  a.span<float>()[5 * 34 + 33] = std::numeric_limits<float>::infinity();
  const Tensor x = a.to(DType::bf16), w = test::random_tensor(DType::bf16, {3, 34}, 2),
               c(DType::bf16, {20, 3});
  const AmxMatmul product(p);
  std::vector<char> scratch(static_cast<size_t>(product.scratch_bytes()));
  product.run({x.raw(), w.raw(), nullptr, nullptr, c.raw(), scratch.data()});
  const auto got = numbers(c);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(std::isinf(got[i]), i / 3 == 5) << i << ": " << got[i];
}

}  // namespace
}  // namespace ebb::cpu
