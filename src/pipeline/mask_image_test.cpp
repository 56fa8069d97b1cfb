#include "pipeline/mask_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "io/resize.h"
#include "pipeline/inpaint_image.h"
#include "support/files.h"
#include "support/numbers.h"

namespace ebb {
namespace {

using testing::error_of;
using testing::numbers;

Tensor grey(int64_t height, int64_t width, uint8_t value = 0) {
  Tensor out(DType::u8, {height, width, 1});
  std::ranges::fill(out.span<uint8_t>(), value);
  return out;
}
uint8_t& at(const Tensor& t, int64_t y, int64_t x, int64_t c = 0) {
  return t.span<uint8_t>()[static_cast<size_t>((y * t.shape()[1] + x) * t.shape()[2] + c)];
}
Tensor with_box(int64_t height, int64_t width, const Region& r) {
  Tensor out = grey(height, width);
  for (int64_t y = r.top; y < r.top + r.height; ++y)
    for (int64_t x = r.left; x < r.left + r.width; ++x) at(out, y, x) = 255;
  return out;
}

}  // namespace

TEST(mask_image, blur__is_a_gaussian_that_keeps_flat_parts) {
  const Tensor edge = with_box(1, 41, {20, 0, 21, 1});
  const Tensor soft = blurred(edge, 4);
  EXPECT_EQ(at(soft, 0, 0), 0);
  EXPECT_EQ(at(soft, 0, 40), 255);
  // normal distribution of deviation 4, cut at 10 pixels: half a pixel from the edge
  EXPECT_NEAR(at(soft, 0, 20), 255 * 0.5497, 2);
  EXPECT_NEAR(at(soft, 0, 24), 255 * 0.8697, 2);
  EXPECT_EQ(int{at(soft, 0, 19)} + int{at(soft, 0, 20)}, 255);
  EXPECT_EQ(error_of([&] { blurred(edge, 300); }),
            "generate: --mask-blur must be 0 to 256 (got 300)");
}

// The web UI's example: a region of 128x32 for a run of 512x512 becomes 128x128.
TEST(mask_image, region__is_padded_and_grows_to_the_ratio_of_the_run_within_the_picture) {
  const Tensor mask = with_box(600, 800, {300, 200, 128, 32});
  EXPECT_EQ(masked_region(mask, 0), (Region{300, 200, 128, 32}));
  EXPECT_EQ(masked_region(mask, 32), (Region{268, 168, 192, 96}));
  EXPECT_EQ(of_ratio({300, 200, 128, 32}, {512, 512}, {600, 800}), (Region{300, 152, 128, 128}));
  EXPECT_EQ(of_ratio({0, 0, 32, 128}, {512, 512}, {600, 800}), (Region{0, 0, 128, 128}));
  EXPECT_EQ(of_ratio({700, 580, 100, 20}, {512, 512}, {600, 800}), (Region{700, 500, 100, 100}));
  EXPECT_EQ(of_ratio({0, 0, 800, 100}, {512, 512}, {600, 800}), (Region{0, 0, 800, 600}));
  EXPECT_EQ(error_of([] { masked_region(grey(8, 8), 0); }),
            "generate: --mask is black: nothing would be generated");
}

TEST(mask_image, latents__follow_each_programs_rule) {
  // one row of four latents: the second is white but for a pixel's column, the third by a quarter
  const Tensor mask = with_box(8, 32, {9, 0, 9, 8});
  EXPECT_EQ(numbers(latent_mask(mask, {1, 4}, LatentMaskRule::rounded_bicubic)),
            (std::vector<float>{0, 1, 0, 0}));
  EXPECT_EQ(numbers(latent_mask(mask, {1, 4}, LatentMaskRule::nearest)),
            (std::vector<float>{0, 0, 1, 0}));
  EXPECT_EQ(numbers(latent_mask(with_box(8, 32, {12, 0, 20, 8}), {1, 4}, LatentMaskRule::bilinear)),
            (std::vector<float>{0, 0.5f, 1, 1}));
}

TEST(mask_image, fill__takes_the_colours_around_and_keeps_the_rest) {
  Tensor picture(DType::u8, {32, 32, 3});
  for (int64_t y = 0; y < 32; ++y)
    for (int64_t x = 0; x < 32; ++x)
      for (int64_t c = 0; c < 3; ++c) at(picture, y, x, c) = x < 16 ? 40 : 200;
  const Tensor mask = with_box(32, 32, {8, 8, 16, 16});
  for (int64_t y = 8; y < 24; ++y)
    for (int64_t x = 8; x < 24; ++x)
      for (int64_t c = 0; c < 3; ++c) at(picture, y, x, c) = 0;
  const Tensor out = filled(picture, mask);
  EXPECT_EQ(at(out, 0, 0), 40);
  EXPECT_EQ(at(out, 31, 31), 200);
  EXPECT_NEAR(at(out, 16, 8), 40, 30);
  EXPECT_NEAR(at(out, 16, 23), 200, 30);
  EXPECT_GE(at(out, 16, 16), 40);
}

TEST(mask_image, overlay__keeps_what_is_not_masked_bit_for_bit) {
  Tensor picture(DType::u8, {1, 3, 3}), mask = grey(1, 3);
  std::ranges::fill(picture.span<uint8_t>(), uint8_t{77});
  at(mask, 0, 1) = 51, at(mask, 0, 2) = 255;
  Tensor made(DType::f32, {1, 3, 3});
  std::ranges::fill(made.span<float>(), 0.5f);
  const float own = 77.f / 127.5f - 1;
  const auto out = numbers(overlaid(made, picture, mask));
  EXPECT_EQ(out[0], own);
  EXPECT_NEAR(out[3], 0.2f * 0.5f + 0.8f * own, 1e-6f);
  EXPECT_EQ(out[6], 0.5f);
}

TEST(outpaint, sides__extend_picture_and_mask_to_a_multiple) {
  InitImage init{.picture = Tensor(DType::u8, {10, 12, 3})};
  std::ranges::fill(init.picture.span<uint8_t>(), uint8_t{9});
  std::optional<MaskImage> mask;
  extend(init, mask, parse_outpaint("4,0,0,6"), 8);
  EXPECT_EQ(init.picture.shape(), (Shape{16, 16, 3}));
  ASSERT_TRUE(mask);
  EXPECT_EQ(mask->content, MaskedContent::fill);
  EXPECT_EQ(at(mask->picture, 0, 3), 255);
  EXPECT_EQ(at(mask->picture, 0, 4), 0);
  EXPECT_EQ(at(mask->picture, 9, 15), 0);
  EXPECT_EQ(at(mask->picture, 10, 8), 255);
  for (const char* bad : {"4,0,0", "4,0,0,x", "1,2,3,4,5", "-1,0,0,0", ""})
    EXPECT_EQ(error_of([&] {
                parse_outpaint(bad);
              }).find("generate: --outpaint must be left,right,top,bottom"),
              0u)
        << bad;
  EXPECT_EQ(error_of([] { parse_outpaint("0,0,0,0"); }),
            "generate: --outpaint adds nothing (got '0,0,0,0')");
}

TEST(init_image, other_sizes__are_stretched_or_cut) {
  Tensor picture(DType::u8, {8, 32, 1});
  for (int64_t y = 0; y < 8; ++y)
    for (int64_t x = 0; x < 32; ++x) at(picture, y, x) = static_cast<uint8_t>(8 * x);
  const Tensor cut = fitted(picture, {8, 8}, FitRule::crop);
  EXPECT_EQ(at(cut, 0, 0), 8 * 12);
  EXPECT_EQ(at(cut, 7, 7), 8 * 19);
  const Tensor filled = fitted(picture, {8, 8}, FitRule::fill);  // 2 rows in the middle
  EXPECT_EQ(filled.shape(), Shape({8, 8, 1}));
  const Tensor inner = io::resize(picture, 2, 8);
  for (int64_t x = 0; x < 8; ++x) {
    EXPECT_EQ(at(filled, 3, x), at(inner, 0, x));
    EXPECT_EQ(at(filled, 0, x), at(filled, 2, x));
    EXPECT_EQ(at(filled, 5, x), at(filled, 7, x));
  }
  EXPECT_EQ(fitted(picture, {8, 8}, FitRule::latent).shape(), picture.shape());
  const Tensor all = fitted(picture, {8, 8}, FitRule::stretch);
  EXPECT_LT(at(all, 0, 0), 24);
  EXPECT_GT(at(all, 0, 7), 224);
}

// Figures of Pillow 13: resize() of a box of no height, as A1111 fills.
TEST(init_image, fill__goes_on_as_pillow_does_at_an_edge) {
  Tensor picture(DType::u8, {2, 4, 1});
  constexpr std::array<uint8_t, 8> rows = {100, 200, 255, 0, 60, 0, 0, 255};
  std::ranges::copy(rows, picture.span<uint8_t>().begin());
  const Tensor filled = fitted(picture, {4, 4}, FitRule::fill);
  constexpr std::array<uint8_t, 4> above = {105, 225, 255, 0}, below = {55, 0, 0, 255};
  for (int64_t x = 0; x < 4; ++x) {
    EXPECT_EQ(at(filled, 0, x), above[static_cast<size_t>(x)]);
    EXPECT_EQ(at(filled, 3, x), below[static_cast<size_t>(x)]);
  }
}

}  // namespace ebb
