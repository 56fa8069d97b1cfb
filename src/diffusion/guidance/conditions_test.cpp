// Averages of conditions, prompts joined by AND, and what self-attention guidance blurs.
#include "diffusion/guidance/conditions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diffusion/guidance/pyramid.h"
#include "diffusion/guidance/sag_blur.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

TEST(conditions, average__weighs_by_place_and_level) {
  const GuidedShape shape{1, 1, 4, 1};
  const std::vector<double> a(4, 1.0), b(4, 5.0), mask = {1, 1, 0.5, 0};
  std::vector<WeightedPrediction> all = {
      {{.mask = mask}, a},
      {{.strength = 3, .area = {{.x = 1, .width = 2}}, .sigma_lo = 1, .sigma_hi = 2}, b}};
  std::vector<double> out(4);
  average(all, 2, shape, out);
  EXPECT_NEAR(out[0], 1, 1e-12);
  EXPECT_NEAR(out[1], (1 + 3 * 5) / 4.0, 1e-12);
  EXPECT_NEAR(out[2], (0.5 + 3 * 5) / 3.5, 1e-12);
  EXPECT_EQ(out[3], 0);  // nothing has weight there
  average(all, 1, shape, out);
  EXPECT_NEAR(out[1], 4, 1e-12);
  average(all, 2.001, shape, out);
  EXPECT_NEAR(out[1], 1, 1e-12);
}

TEST(conditions, feather__rises_from_inner_edges_alone) {
  const GuidedShape shape{1, 1, 8, 1};
  const ConditionWeight w{.area = {{.width = 5}}, .feather = 2};
  const std::vector<double> want = {1, 1, 1, 1, 0.5, 0, 0, 0};
  for (int64_t p = 0; p < 8; ++p) EXPECT_EQ(weight_at(w, shape, p), want[static_cast<size_t>(p)]);
}

TEST(conditions, joined_by_and__adds_differences) {
  const std::vector<double> u = {1}, a = {2}, b = {4}, w = {1, -0.5};
  const std::vector<Values> conds = {a, b};
  std::vector<double> out(1);
  joined_by_and(u, conds, w, out);
  EXPECT_EQ(out[0], 1 + 1 - 0.5 * 3);
  expect_error([&] { joined_by_and(u, conds, u, out); }, "each condition needs a weight (2 and 1)");
}

TEST(pyramid, collapsed__is_the_image) {
  Plane image{8, 12, {}};
  for (int i = 0; i < 96; ++i) image.values.push_back(std::sin(0.7 * i));
  const Plane again = collapsed(laplacian(image, 3));
  for (size_t i = 0; i < 96; ++i) EXPECT_NEAR(again.values[i], image.values[i], 1e-14);
  // A plane of one value has no detail.
  const std::vector<Plane> flat = laplacian({4, 4, std::vector<double>(16, 2.5)}, 2);
  for (const double v : flat[0].values) EXPECT_NEAR(v, 0, 1e-14);
}

TEST(sag_attention, heads__are_averaged_and_places_enlarged) {
  // Two heads over 1 x 2 places; each query's row has the sum 1.
  const std::vector<float> map = {1, 0, 0.5F, 0.5F, 0.5F, 0.5F, 1, 0};
  const auto out = sag_attention({map, 2, 1, 2}, {1, 2, 4, 1});
  EXPECT_EQ(out, (std::vector<double>{1.5, 1.5, 0.5, 0.5, 1.5, 1.5, 0.5, 0.5}));
  expect_error([&] { sag_attention({map, 3, 1, 2}, {1, 2, 4, 1}); }, "has 12 values (got 8)");
}

TEST(sag_blur, pixels_with_attention__are_averages) {
  const GuidedShape shape{1, 3, 3, 1};
  const std::vector<double> u = {0, 0, 0, 0, 9, 0, 0, 0, 0};
  const std::vector<double> attention = {1, 1, 1, 1, 1.1, 1, 1, 1, 1};
  std::vector<double> out(9);
  sag_blur(u, attention, shape, {.size = 3, .sigma = 1e6}, out);
  EXPECT_NEAR(out[4], 1, 1e-9);
  EXPECT_EQ(out[0], 0);  // at the threshold nothing is blurred
  expect_error([&] { sag_blur(u, attention, shape, {.sigma = 0}, out); }, "must be positive (0)");
  expect_error([&] { sag_blur(u, attention, shape, {.size = 4}, out); }, "size must be odd (4)");
}

}  // namespace
}  // namespace ebb
