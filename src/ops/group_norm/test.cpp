// The norms against their definitions, written out.
#include "ops/group_norm/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/layer_norm/op.h"
#include "ops/modulate/op.h"
#include "ops/rms_norm/op.h"
#include "passes/lower.h"
#include "reference.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::run_one;

TEST(group_norm, two_groups__are_normalised_each_by_itself) {
  // Two pixels, four channels in two groups; group 0 holds 1 3 5 7, group 1 holds 10 10 10 20.
  const auto y = run_one(
      {{{1, 2, 4}, {1, 3, 10, 10, 5, 7, 10, 20}}, {{4}, {1, 2, 1, 1}}, {{4}, {0, 0, 0, 100}}},
      [](auto x) { return ops::group_norm(x[0], x[1], x[2], {.groups = 2, .eps = 0}); });
  const double a = 1 / std::sqrt(5.0), b = 1 / std::sqrt(18.75);
  const std::vector<double> want = {-3 * a, 2 * -1 * a, -2.5 * b, -2.5 * b + 100,
                                    1 * a,  2 * 3 * a,  -2.5 * b, 7.5 * b + 100};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(y.v[i], want[i], 1e-12) << i;
}

TEST(group_norm, eps__keeps_a_constant_group_finite) {
  const auto y = run_one({{{1, 3, 2}, {4, 4, 4, 4, 4, 4}}}, [](auto x) {
    return ops::group_norm(x[0], {}, {}, {.groups = 1, .eps = 1e-5});
  });
  for (const double v : y.v) EXPECT_NEAR(v, 0, 1e-10);
}

// So that what follows fuses with it: one expression on x's shape after the statistics.
TEST(group_norm, decomposition__has_one_large_expression) {
  Graph g;
  const Type c{DType::f32, {12}};
  const Value x = g.input("x", {DType::f32, {2, 8, 8, 12}});
  g.output("y", ops::group_norm(x, g.input("gamma", c), g.input("beta", c), {.groups = 4}));
  const Graph low = lower(g, [](const Signature& s) { return s.op->reference != nullptr; });
  int large = 0;
  for (const Node& n : low.nodes()) large += low.type(n.out[0]).shape.numel() == 2 * 8 * 8 * 12;
  EXPECT_EQ(large, 1);
}

TEST(layer_norm, rows__are_normalised) {
  const auto y = run_one({{{2, 2}, {1, 3, 10, 30}}},
                         [](auto x) { return ops::layer_norm(x[0], {}, {}, {.eps = 1}); });
  EXPECT_NEAR(y.v[0], -1 / std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(y.v[3], 10 / std::sqrt(101.0), 1e-12);
}

TEST(rms_norm, rows__are_divided_by_their_root_mean_square) {
  const auto y = run_one({{{1, 2}, {3, 4}}, {{2}, {1, 10}}},
                         [](auto x) { return ops::rms_norm(x[0], x[1], {.eps = 0.5}); });
  EXPECT_NEAR(y.v[0], 3 / std::sqrt(13.0), 1e-12);
  EXPECT_NEAR(y.v[1], 40 / std::sqrt(13.0), 1e-12);
}

TEST(modulate, shift_and_scale__are_those_of_the_sample) {
  const auto y = run_one({{{2, 2, 1}, {1, 2, 3, 4}}, {{2, 1}, {10, 20}}, {{2, 1}, {0, 1}}},
                         [](auto x) { return ops::modulate(x[0], x[1], x[2]); });
  EXPECT_EQ(y.v, (std::vector<double>{11, 12, 26, 28}));
}

}  // namespace
}  // namespace ebb
