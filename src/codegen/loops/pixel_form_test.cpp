// Passes over images as expressions: what a variance in one sweep gives where sums are not exact.
#include "codegen/loops/pixel_form.h"
#include "support/expressions.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace ebb::codegen {
namespace {

using testing::in;

// Images of 4 channels in two groups: x -> 1 / deviation.
PixelForm norm(int64_t pixels, double eps) {
  constexpr int64_t channels = 4, groups = 2;
  const double inverse = 1.0 / static_cast<double>(pixels * (channels / groups));
  const Scalar x = in(0), mean = in(2) * inverse;
  const Scalar results[] = {x, in(1), (x - mean) * (x - mean), in(3), rsqrt(in(4) * inverse + eps)};
  return {.expr = Expr(5, results),
          .in = {{.dtype = DType::bf16, .streams = true}},
          .reductions = {PixelReduction::pixels, PixelReduction::groups, PixelReduction::pixels,
                         PixelReduction::groups},
          .out = {DType::f32},
          .per_channel = {true},
          .pixels = pixels,
          .channels = channels,
          .groups = groups};
}

// A constant image: what is squared is 0, and the reductions of x are right but for their last
// bits.
TEST(pixel_form, variance_of_a_constant_image__is_not_negative) {
  constexpr int64_t pixels = 36;
  constexpr double value = 30000, bit = 1.0 / (1 << 23);
  const PixelForm form = in_one_sweep(norm(pixels, 1e-6));
  ASSERT_EQ(form.in.size(), 2u);
  for (const double of_channel : {-bit, 0.0, bit})
    for (const double of_group : {-bit, 0.0, bit}) {
      // x, the first pixel, then the reductions.
      const std::array<double, 6> in = {
          value, value, value * pixels * (1 + of_channel), value * pixels * 2 * (1 + of_group),
          0,     0};
      std::array<double, 5> out{};
      form.expr.evaluate(in, out);
      EXPECT_EQ(out[2], 0) << "what is left of x without the first pixel";
      EXPECT_GE(out[3], 0) << of_channel << ' ' << of_group;
    }
}

TEST(pixel_form, variance_of_NaN__is_NaN) {
  const PixelForm form = in_one_sweep(norm(36, 1e-6));
  std::array<double, 6> in = {};
  in.fill(std::nan(""));
  std::array<double, 5> out{};
  form.expr.evaluate(in, out);
  EXPECT_TRUE(std::isnan(out[3]));
}

}  // namespace
}  // namespace ebb::codegen
