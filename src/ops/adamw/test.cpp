#include "ops/adamw/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/clip_scale/op.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::Input;

// p, m, v and the average after one step from the given state, one element.
struct State {
  double p = 1, m = 0, v = 0, ema = 1;
};

constexpr double lr = 0.1, ema_decay = 0.5;

State step(const State& s, double g, double t, double clip) {
  const ops::AdamW attrs{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.2};
  const double values[] = {
      s.p, g, s.m, s.v, lr, 1 - std::pow(0.9, t), 1 - std::pow(0.99, t), clip, s.ema, ema_decay};
  std::vector<Input> in;
  for (size_t i = 0; i < 10; ++i)
    in.push_back({(i >= 4 && i < 8) || i == 9 ? Shape{} : Shape{1}, {values[i]}});
  const auto y = test::run_all(in, [&](auto x) {
    const ops::AdamWInputs use{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9]};
    const auto r = ops::adamw(use, attrs);
    return std::vector<Value>{r.p, r.m, r.v, r.ema};
  });
  return {y[0].v[0], y[1].v[0], y[2].v[0], y[3].v[0]};
}

// The two steps written out by hand: decay first, then the bias-corrected update.
TEST(adamw, two_steps__decay_first_then_move) {
  const State a = step({}, 2, 1, 1);
  EXPECT_NEAR(a.m, 0.2, 1e-15);
  EXPECT_NEAR(a.v, 0.04, 1e-15);
  EXPECT_NEAR(a.p, 0.98 - 0.1 * 2 / (2 + 1e-3), 1e-14);  // corrected m and sqrt(v) are 2
  EXPECT_NEAR(a.ema, (1 + a.p) / 2, 1e-15);
  const State b = step(a, -1, 2, 1);
  const double m = 0.9 * 0.2 - 0.1, v = 0.99 * 0.04 + 0.01;
  EXPECT_NEAR(b.p, a.p * 0.98 - 0.1 * (m / 0.19) / (std::sqrt(v / 0.0199) + 1e-3), 1e-14);
}

TEST(adamw, clip__scales_the_gradient) {
  EXPECT_NEAR(step({}, 2, 1, 0.25).m, 0.05, 1e-15);
  EXPECT_NEAR(step({}, 2, 1, 0.25).v, 0.0025, 1e-15);
}

TEST(adamw, clip_of_zero__skips_even_a_gradient_that_is_not_a_number) {
  const State before{.p = 3, .m = 0.5, .v = 0.25, .ema = 2};
  const State after = step(before, NAN, 5, 0);
  EXPECT_EQ(after.p, 3);
  EXPECT_EQ(after.m, 0.5);
  EXPECT_EQ(after.v, 0.25);
  EXPECT_EQ(after.ema, 2);
}

// ---- clip_scale ----------------------------------------------------------------------------

struct Clip {
  double scale, norm;
};

Clip clip(std::vector<double> a, std::vector<double> b, double max_norm) {
  const std::vector<Input> in = {{{static_cast<int64_t>(a.size())}, a},
                                 {{static_cast<int64_t>(b.size())}, b}};
  const auto y = test::run_all(in, [&](auto x) {
    const auto r = ops::clip_scale(x, {.max_norm = max_norm});
    return std::vector<Value>{r.scale, r.norm};
  });
  return {y[0].v[0], y[1].v[0]};
}

TEST(clip_scale, norm__is_that_of_all_gradients_together) {
  EXPECT_DOUBLE_EQ(clip({3, 0}, {4}, 1).norm, 5);
  EXPECT_NEAR(clip({3, 0}, {4}, 1).scale, 0.2, 1e-6);
}

TEST(clip_scale, small_or_zero_norm__changes_nothing) {
  EXPECT_EQ(clip({0.3}, {0.4}, 1).scale, 1);
  EXPECT_EQ(clip({0}, {0}, 1).scale, 1);
  EXPECT_EQ(clip({30}, {40}, 0).scale, 1);  // no limit
}

TEST(clip_scale, gradient_that_is_not_finite__gives_zero) {
  EXPECT_EQ(clip({NAN}, {1}, 1).scale, 0);
  EXPECT_EQ(clip({1}, {INFINITY}, 1).scale, 0);
  EXPECT_EQ(clip({1}, {-INFINITY}, 0).scale, 0);
}

}  // namespace
}  // namespace ebb
