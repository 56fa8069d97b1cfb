#include "train/frechet.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace ebb::train {
namespace {

// Rows of independent normals, scaled and shifted by column.
Tensor normals(int64_t n, std::vector<float> scale, std::vector<float> shift, uint64_t seed) {
  const auto d = static_cast<int64_t>(scale.size());
  Tensor t(DType::f32, {n, d});
  for (int64_t i = 0; i < n * d; ++i) {
    const Philox w = random_block({.seed = seed}, static_cast<uint64_t>(i));
    const auto c = static_cast<size_t>(i % d);
    t.span<float>()[static_cast<size_t>(i)] = normals_from(w[0], w[1])[0] * scale[c] + shift[c];
  }
  return t;
}

TEST(frechet, same_set__is_zero) {
  const auto a = normals(500, {1, 2, 3}, {0, 1, 2}, 1);
  EXPECT_NEAR(frechet_distance(a, a), 0, 1e-9);
}

TEST(frechet, diagonal_gaussians__has_the_closed_form) {
  const auto a = normals(200000, {1, 2}, {0, 0}, 1), b = normals(200000, {3, 2}, {1, -2}, 2);
  // |m|^2 + sum (s1 - s2)^2 = 5 + 4; the estimates of 200000 rows are within 1 %
  EXPECT_NEAR(frechet_distance(a, b), 9, 0.1);
  EXPECT_NEAR(frechet_distance(a, b), frechet_distance(b, a), 1e-6);
}

// 3 and 5 rows of 40 features, five copies of 8 each, against the 8.
TEST(frechet, fewer_images_than_features__is_that_of_the_space_they_span) {
  const std::vector<float> ones(8, 1), zeros(8, 0);
  const Tensor a = normals(3, ones, zeros, 1), b = normals(5, ones, zeros, 2);
  const auto wider = [](const Tensor& t) {  // each feature five times, over sqrt(5)
    Tensor out(DType::f32, {t.shape()[0], 40});
    for (size_t i = 0; i < out.span<float>().size(); ++i)
      out.span<float>()[i] = t.span<float>()[i / 5] / std::sqrt(5.0f);
    return out;
  };
  const double narrow = frechet_distance(a, b);
  EXPECT_NEAR(frechet_distance(wider(a), wider(b)), narrow, 1e-6 * narrow);
  EXPECT_NEAR(frechet_distance(b, a), narrow, 1e-9 * narrow);
  // one side has full rank
  const Tensor c = normals(50, ones, zeros, 3);
  EXPECT_NEAR(frechet_distance(wider(a), wider(c)), frechet_distance(a, c), 1e-6);
}

TEST(frechet, sets_of_other_widths__says_so) {
  const auto a = normals(10, {1}, {0}, 1), b = normals(10, {1, 1}, {0, 0}, 1);
  EXPECT_THROW(frechet_distance(a, b), Error);
}

}  // namespace
}  // namespace ebb::train
