#include "ops/dropout/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::Input;
using test::run_one;

std::vector<Input> keys(double seed, std::vector<double> image, double step) {
  const auto n = static_cast<int64_t>(image.size());
  return {{{}, {seed}, DType::i64}, {{n}, std::move(image), DType::i64}, {{}, {step}, DType::i64}};
}

std::vector<double> dropped(double p, const std::string& use, double step) {
  std::vector<Input> in = keys(1, {0, 1}, step);
  in.push_back({{2, 5000}, std::vector<double>(10000, 1.0)});
  return run_one(in,
                 [&](auto x) {
                   return ops::dropout(x[3], {x[0], x[1], x[2]}, {.p = p, .use = use});
                 })
      .v;
}

TEST(dropout, kept_elements__are_scaled_and_as_many_as_expected) {
  const auto y = dropped(0.25, "a", 0);
  double kept = 0;
  for (const double v : y) {
    EXPECT_TRUE(v == 0 || v == 1 / 0.75);
    kept += v != 0;
  }
  EXPECT_NEAR(kept / 10000, 0.75, 4 * std::sqrt(0.25 * 0.75 / 10000));  // four deviations
}

TEST(dropout, mask__depends_on_use_and_step_alone) {
  EXPECT_EQ(dropped(0.5, "a", 3), dropped(0.5, "a", 3));
  EXPECT_NE(dropped(0.5, "a", 3), dropped(0.5, "b", 3));
  EXPECT_NE(dropped(0.5, "a", 3), dropped(0.5, "a", 4));
}

// ---- random --------------------------------------------------------------------------------

std::vector<double> normals(std::vector<double> image, int64_t count) {
  return run_one(keys(7, std::move(image), 2),
                 [&](auto x) {
                   return ops::random_normal({x[0], x[1], x[2]}, {count}, "noise");
                 })
      .v;
}

TEST(random, numbers__are_those_of_the_stream) {
  const auto y = normals({42}, 7);
  for (uint64_t e = 0; e < 7; ++e) {
    const Philox w = random_block({7, 42, 2, random_use("noise")}, e / 4);
    const auto pair = e % 4 < 2 ? normals_from(w[0], w[1]) : normals_from(w[2], w[3]);
    EXPECT_EQ(y[e], pair[e % 2]);
  }
}

TEST(random, picture__does_not_depend_on_the_batch) {
  const auto both = normals({5, 9}, 11), one = normals({9}, 11);
  EXPECT_EQ(std::vector<double>(both.begin() + 11, both.end()), one);
}

TEST(random, normals__have_mean_zero_variance_one_and_the_right_tails) {
  const int64_t n = 40000;
  const auto y = normals({0}, n);
  double mean = 0, square = 0, fourth = 0;
  for (const double v : y) {
    mean += v / n;
    square += v * v / n;
    fourth += v * v * v * v / n;
  }
  // Four standard deviations of each estimate.
  EXPECT_NEAR(mean, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(square, 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(fourth, 3, 4 * std::sqrt(96.0 / n));
}

}  // namespace
}  // namespace ebb
