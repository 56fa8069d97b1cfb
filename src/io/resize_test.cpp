#include "io/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "support/files.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

std::vector<int> values(const Tensor& t) {
  return {t.span<uint8_t>().begin(), t.span<uint8_t>().end()};
}
Tensor image(std::vector<uint8_t> v, Shape s) { return tensor_of(v, std::move(s)); }

TEST(resize, box_by_a_whole_factor__is_the_mean) {
  const Tensor t = image({0, 10, 20, 30, 4, 6, 40, 50}, {2, 4, 1});
  EXPECT_EQ(values(resize(t, 1, 2, ResizeFilter::box)), (std::vector<int>{5, 35}));
}

TEST(resize, box_by_a_fraction__weighs_by_the_covered_area) {
  // Outputs cover 1.5 pixels: (90 + 0.5 * 60) / 1.5 and (0.5 * 60 + 30) / 1.5.
  EXPECT_EQ(values(resize(image({90, 60, 30}, {1, 3, 1}), 1, 2, ResizeFilter::box)),
            (std::vector<int>{80, 40}));
}

TEST(resize, constant_image__stays_constant) {
  for (const ResizeFilter f : {ResizeFilter::box, ResizeFilter::lanczos})
    for (const int64_t side : {1, 3, 7, 16, 40}) {
      Tensor t(DType::u8, {13, 17, 3});
      for (uint8_t& v : t.span<uint8_t>()) v = 201;
      for (const int v : values(resize(t, side, side + 2, f))) ASSERT_EQ(v, 201);
    }
}

TEST(resize, channels__do_not_mix) {
  const Tensor t = image({0, 100, 200, 0, 100, 200, 0, 100, 200, 0, 100, 200}, {2, 2, 3});
  EXPECT_EQ(values(resize(t, 1, 1)), (std::vector<int>{0, 100, 200}));
}

// The finest pattern has no place in an eighth of the pixels: without antialiasing it would come
// out as a coarse wave of full height.
TEST(resize, shrinking_a_fine_pattern__gives_its_mean) {
  Tensor t(DType::u8, {144, 144, 1});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.span<uint8_t>()[static_cast<size_t>(i)] = (i % 144 + i / 144) % 2 ? 255 : 0;
  for (const ResizeFilter f : {ResizeFilter::box, ResizeFilter::lanczos}) {
    const Tensor small = resize(t, 17, 17, f);
    for (int64_t y = 1; y < 16; ++y)
      for (int64_t x = 1; x < 16; ++x)
        EXPECT_NEAR(small.span<uint8_t>()[static_cast<size_t>(y * 17 + x)], 127.5, 4.5);
  }
}

// A slow cosine sampled at pixel centres resizes to the same cosine at the new centres.
TEST(resize, lanczos__keeps_a_slow_wave_in_place) {
  const auto wave = [](double u) { return 127.5 + 100 * std::cos(2 * std::numbers::pi * u * 2); };
  for (const int64_t to : {24, 50, 100}) {
    Tensor t(DType::u8, {1, 64, 1});
    for (int64_t x = 0; x < 64; ++x)
      t.span<uint8_t>()[static_cast<size_t>(x)] =
          static_cast<uint8_t>(std::lround(wave((static_cast<double>(x) + 0.5) / 64)));
    const Tensor r = resize(t, 1, to);
    for (int64_t x = 3 * to / 32; x < to - 3 * to / 32; ++x)  // away from the borders
      EXPECT_NEAR(r.span<uint8_t>()[static_cast<size_t>(x)],
                  wave((static_cast<double>(x) + 0.5) / static_cast<double>(to)), 2.5)
          << to << " " << x;
  }
}

TEST(resize, lanczos_overshoot__is_clamped) {
  Tensor t(DType::u8, {1, 32, 1});
  for (size_t i = 16; i < 32; ++i) t.span<uint8_t>()[i] = 255;
  const std::vector<int> v = values(resize(t, 1, 64));
  EXPECT_EQ(v.front(), 0);
  EXPECT_EQ(v.back(), 255);
  EXPECT_EQ(*std::max_element(v.begin(), v.end()), 255);
  for (size_t i = 0; i < 28; ++i) EXPECT_LT(v[i], 20);  // wrapping around would give 250
}

TEST(crop, part_of_an_image__must_lie_in_it) {
  const Tensor all = image({1, 2, 3, 4, 5, 6}, {2, 3, 1});
  EXPECT_EQ(values(crop(all, 0, 1, 2, 2)), (std::vector<int>{2, 3, 5, 6}));
  EXPECT_EQ(values(crop(all, 1, 0, 1, 3)), (std::vector<int>{4, 5, 6}));
  for (const auto& [top, left, height, width] :
       {std::array{-1, 0, 1, 1}, {0, 2, 1, 2}, {1, 0, 2, 1}, {0, 0, 0, 1}})
    EXPECT_THROW(crop(all, top, left, height, width), Error);
}

TEST(centre_crop, both_orientations__take_the_middle) {
  EXPECT_EQ(values(centre_crop(image({1, 2, 3, 4}, {1, 4, 1}))), (std::vector<int>{2}));
  EXPECT_EQ(values(centre_crop(image({1, 2, 3, 4, 5, 6}, {3, 2, 1}))),
            (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(values(centre_crop(image({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2, 1}))),
            (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(square(Tensor(DType::u8, {30, 50, 3}), 8).shape(), (Shape{8, 8, 3}));
}

TEST(resize, wrong_input__is_an_error) {
  expect_error([] { resize(Tensor(DType::f32, {2, 2, 1}), 1, 1); }, "needs a non-empty u8[H,W,C]");
  expect_error([] { resize(Tensor(DType::u8, {0, 2, 1}), 1, 1); }, "needs a non-empty");
  expect_error([] { resize(Tensor(DType::u8, {2, 2, 1}), 0, 1); }, "must be positive (1x0)");
}

}  // namespace
}  // namespace ebb::io
