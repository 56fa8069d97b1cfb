#include "pipeline/preview.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ebb {
namespace {

// A decoder of eight pixels a latent whose colours are affine in the latents, clipped.
Decoder affine(const std::vector<std::vector<double>>& rows) {
  return {"affine", [rows](const Tensor& z) {
            const Shape& s = z.shape();
            Tensor out(DType::f32, {s[0], 8 * s[1], 8 * s[2], 3});
            float* to = out.span<float>().data();
            for (int64_t n = 0; n < s[0]; ++n)
              for (int64_t y = 0; y < 8 * s[1]; ++y)
                for (int64_t x = 0; x < 8 * s[2]; ++x)
                  for (size_t c = 0; c < 3; ++c) {
                    const float* v =
                        z.span<float>().data() + ((n * s[1] + y / 8) * s[2] + x / 8) * s[3];
                    double sum = rows[c][4];
                    for (size_t k = 0; k < 4; ++k) sum += rows[c][k] * static_cast<double>(v[k]);
                    *to++ = static_cast<float>(sum);
                  }
            return out;
          }};
}

TEST(Preview, linear__finds_the_map_of_a_decoder_that_is_affine) {
  const std::vector<std::vector<double>> rows = {
      {0.1, -0.2, 0.05, 0, 0.1}, {0, 0.1, 0.1, -0.1, -0.2}, {0.05, 0.05, -0.1, 0.2, 0}};
  const Preview preview = linear_preview(affine(rows), 4);
  Tensor z(DType::f32, {2, 3, 5, 4});
  float v = -1;
  for (float& x : z.span<float>()) x = std::sin(v += 0.7f);
  const Tensor want = affine(rows).decode(z.clone()), got = preview(z);
  ASSERT_EQ(got.shape(), (Shape{2, 3, 5, 3}));
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t x = 0; x < 5; ++x)
        for (int64_t c = 0; c < 3; ++c)
          EXPECT_NEAR(
              got.span<float>()[static_cast<size_t>(((n * 3 + y) * 5 + x) * 3 + c)],
              want.span<float>()[static_cast<size_t>(((n * 24 + 8 * y) * 40 + 8 * x) * 3 + c)],
              1e-5);
}

TEST(Preview, terminal__gets_two_pixels_a_character) {
  Tensor image(DType::u8, {2, 2, 3});
  const std::vector<uint8_t> colours = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
  std::copy(colours.begin(), colours.end(), image.span<uint8_t>().begin());
  EXPECT_EQ(terminal_text(image, 80),
            "\033[38;2;255;0;0m\033[48;2;0;0;255m\u2580\033[38;2;0;255;0m\033[48;2;9;9;9m\u2580"
            "\033[0m\n");
  const std::string small = terminal_text(Tensor(DType::u8, {64, 100, 3}), 10);
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 3);
}

}  // namespace
}  // namespace ebb
