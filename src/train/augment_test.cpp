#include "train/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

#include "base/hash.h"
#include "support/files.h"

namespace ebb::train {
namespace {

using namespace ebb::testing;
using Image = std::vector<float>;

// A picture given by a function of the distance from its middle, in pixels.
Image picture(int64_t h, int64_t w, const std::function<double(double x, double y)>& f) {
  Image out;
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      out.push_back(static_cast<float>(f(static_cast<double>(x) - static_cast<double>(w - 1) / 2,
                                         static_cast<double>(y) - static_cast<double>(h - 1) / 2)));
  return out;
}

Image noise(size_t n) {
  Image out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(splitmix64(i) >> 40) * 0x1p-23f - 1.0f;
  return out;
}

Image augmented(const Augmentation& a, const Shape& shape, const Image& in,
                const AugmentOptions& o = {}) {
  Image out(in.size());
  augment(a, o, shape, in.data(), out.data());
  return out;
}

// The largest difference, leaving out a border of `margin` pixels (one channel).
double difference(const Image& a, const Image& b, const Shape& s, int64_t margin) {
  double most = 0;
  for (int64_t y = margin; y < s[0] - margin; ++y)
    for (int64_t x = margin; x < s[1] - margin; ++x)
      most = std::max(most, std::fabs(double{a[static_cast<size_t>(y * s[1] + x)]} -
                                      b[static_cast<size_t>(y * s[1] + x)]));
  return most;
}

// Smooth: the shortest wave is about 13 pixels long.
double waves(double x, double y) {
  return 0.5 * std::cos(0.4 * x + 0.3) + 0.4 * std::sin(0.3 * y - 0.35 * x);
}

TEST(augment, nothing_drawn__copies) {
  const Image in = noise(5 * 7 * 3);
  EXPECT_EQ(augmented({}, {5, 7, 3}, in), in);
}

TEST(augment, flips__are_exact) {
  const Image in{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(augmented({.flip_x = true}, {2, 3, 1}, in), (Image{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(augmented({.flip_y = true}, {2, 3, 1}, in), (Image{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(augmented({.flip_x = true}, {1, 2, 3}, in), (Image{4, 5, 6, 1, 2, 3}));
}

// Through doubling, sampling and halving noise comes back: the wavelet is orthonormal and the grids
// lie where the code thinks. f32 rounding only.
TEST(augment, transform_that_moves_nothing__reconstructs_noise) {
  for (const Shape& s : {Shape{8, 8, 1}, Shape{5, 9, 3}, Shape{1, 1, 1}, Shape{2, 31, 2}}) {
    const Image in = noise(static_cast<size_t>(s.numel()));
    const Image out = augmented({.angle = 1e-12}, s, in);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_NEAR(out[i], in[i], 2e-6) << s;
  }
}

TEST(augment, shift_by_whole_pixels__moves_right_and_down_with_reflection) {
  const Shape s{8, 16, 1};
  const Image in = noise(128);
  // 3 pixels right and 2 down; the defaults shift by 1/8 side per unit.
  const Image out = augmented({.shift_x = 3.0 / 2, .shift_y = 2.0}, s, in);
  for (int64_t y = 0; y < 8; ++y)
    for (int64_t x = 0; x < 16; ++x)
      EXPECT_NEAR(out[static_cast<size_t>(y * 16 + x)],
                  in[static_cast<size_t>(std::abs(y - 2) * 16 + std::abs(x - 3))], 5e-6);
}

// The transforms of smooth pictures against the pictures' formula; tolerances cover bilinear
// sampling at twice the resolution (second derivative 0.4^2, h = 1/2: about 0.005) and the wavelet.
TEST(augment, scale__grows_the_picture) {
  const Shape s{64, 64, 1};
  const double f = std::exp2(0.2 * 1.5);
  const Image expected = picture(64, 64, [&](double x, double y) { return waves(x / f, y / f); });
  EXPECT_LT(difference(augmented({.scale = 1.5}, s, picture(64, 64, waves)), expected, s, 0), 0.02);
}

TEST(augment, rotation__turns_about_the_middle) {
  const Shape s{64, 64, 1};
  for (const double t : {0.5, -2.0, std::numbers::pi / 2}) {
    // R(t) (x,y): the source of the output pixel.
    const Image expected = picture(64, 64, [&](double x, double y) {
      return waves(std::cos(t) * x - std::sin(t) * y, std::sin(t) * x + std::cos(t) * y);
    });
    EXPECT_LT(difference(augmented({.angle = t}, s, picture(64, 64, waves)), expected, s, 16), 0.02)
        << t;
  }
}

TEST(augment, stretch__acts_along_its_axis) {
  const Shape s{64, 64, 1};
  const double f = std::exp2(0.2);
  const Image in = picture(64, 64, waves);
  const Image along_x = picture(64, 64, [&](double x, double y) { return waves(x / f, y * f); });
  EXPECT_LT(difference(augmented({.aniso = 1}, s, in), along_x, s, 8), 0.02);
  const Image along_y = picture(64, 64, [&](double x, double y) { return waves(x * f, y / f); });
  const double quarter = std::numbers::pi / 2;
  EXPECT_LT(difference(augmented({.aniso = 1, .aniso_angle = quarter}, s, in), along_y, s, 8),
            0.02);
}

TEST(augment, shrinking_a_fine_pattern__does_not_alias) {
  const Shape s{64, 64, 1};
  Image in;
  for (int64_t i = 0; i < 64 * 64; ++i) in.push_back((i % 64 + i / 64) % 2 ? 1.0f : -1.0f);
  const Image out = augmented({.scale = -4}, s, in);  // to 2^-0.8 = 0.57 of the size
  for (const float v : out) EXPECT_LT(std::fabs(v), 0.1);
}

TEST(augment, channels__stay_apart) {
  Image in(16 * 16 * 2);
  for (size_t i = 0; i < in.size(); i += 2) in[i] = 0.75f;
  const Image out = augmented({.scale = 1, .angle = 1, .shift_x = 1}, {16, 16, 2}, in);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], i % 2 ? 0.0f : 0.75f, 1e-5);
}

TEST(augment, labels__follow_the_transform) {
  const Augmentation a{true, true, 0.5, 0.25, 2, 1, -0.5, 1.5};
  const std::array<float, augment_labels> expected{1,
                                                   1,
                                                   0.5f,
                                                   std::cos(0.25f) - 1,
                                                   std::sin(0.25f),
                                                   2 * std::cos(1.0f),
                                                   2 * std::sin(1.0f),
                                                   -0.5f,
                                                   1.5f};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(labels_of(a)[i], expected[i], 1e-6);
  for (const float v : labels_of({})) EXPECT_EQ(v, 0.0f);
}

TEST(draw_augmentation, frequencies_and_spreads__are_as_requested) {
  constexpr int64_t n = 20000;
  const AugmentOptions o{.p = 0.25};
  double x = 0, y = 0, scales = 0, turns = 0, stretches = 0, shifts = 0, squares = 0, angles = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Augmentation a = draw_augmentation(o, 9, i);
    x += a.flip_x;
    y += a.flip_y;
    scales += a.scale != 0;
    turns += a.angle != 0;
    stretches += a.aniso != 0;
    shifts += a.shift_x != 0;
    squares += a.scale * a.scale;
    angles += std::fabs(a.angle);
  }
  const double tolerance = 5 * std::sqrt(0.25 / n);  // 5 standard deviations, at most
  EXPECT_NEAR(x / n, 0.5, tolerance);
  EXPECT_NEAR(y / n, 0.125, tolerance);
  for (const double v : {scales, turns, stretches, shifts}) EXPECT_NEAR(v / n, 0.25, tolerance);
  EXPECT_NEAR(squares / scales, 1.0, 0.1);  // variance; 5 sqrt(2/5000)
  EXPECT_NEAR(angles / turns, std::numbers::pi / 2,
              0.07);  // mean of |U(-pi,pi)|; 5 * 0.9/sqrt(5000)
}

TEST(draw_augmentation, seed_and_position__decide) {
  const AugmentOptions o{.p = 1};
  EXPECT_EQ(labels_of(draw_augmentation(o, 1, 2)), labels_of(draw_augmentation(o, 1, 2)));
  EXPECT_NE(labels_of(draw_augmentation(o, 1, 2)), labels_of(draw_augmentation(o, 1, 3)));
  EXPECT_NE(labels_of(draw_augmentation(o, 1, 2)), labels_of(draw_augmentation(o, 2, 2)));
}

}  // namespace
}  // namespace ebb::train
