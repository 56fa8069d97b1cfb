// Learning-rate and averaging schedules.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/files.h"

namespace ebb::train {
namespace {

TEST(rate, constant_with_warmup__rises_linearly_to_lr) {
  const RateSchedule s{.lr = 8, .warmup = 4};
  EXPECT_DOUBLE_EQ(rate_at(s, 0), 2);
  EXPECT_DOUBLE_EQ(rate_at(s, 2), 6);
  EXPECT_DOUBLE_EQ(rate_at(s, 3), 8);
  EXPECT_DOUBLE_EQ(rate_at(s, 1000000), 8);
}

TEST(rate, cosine__is_half_way_in_the_middle_and_final_at_the_end) {
  const RateSchedule s{.kind = "cosine", .lr = 1, .warmup = 10, .steps = 110, .final = 0.2};
  EXPECT_DOUBLE_EQ(rate_at(s, 10), 1);
  EXPECT_NEAR(rate_at(s, 60), 0.6, 1e-12);
  EXPECT_NEAR(rate_at(s, 35), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(rate_at(s, 110), 0.2, 1e-12);
  EXPECT_NEAR(rate_at(s, 500), 0.2, 1e-12);
}

TEST(rate, linear__falls_on_a_line) {
  const RateSchedule s{.kind = "linear", .lr = 4, .steps = 100, .final = 0.5};
  EXPECT_DOUBLE_EQ(rate_at(s, 0), 4);
  EXPECT_DOUBLE_EQ(rate_at(s, 25), 3.5);
  EXPECT_DOUBLE_EQ(rate_at(s, 100), 2);
}

TEST(rate, rsqrt__halves_when_the_steps_quadruple) {
  const RateSchedule s{.kind = "rsqrt", .lr = 1, .warmup = 2, .reference = 100};
  EXPECT_DOUBLE_EQ(rate_at(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(rate_at(s, 100), 1);
  EXPECT_DOUBLE_EQ(rate_at(s, 400), 0.5);
  EXPECT_DOUBLE_EQ(rate_at(s, 1600), 0.25);
}

TEST(rate, impossible_schedules__say_why) {
  const auto text = [](const RateSchedule& s) { return testing::error_of([&] { check(s); }); };
  EXPECT_EQ(text({.kind = "cosin"}), "schedule: unknown kind 'cosin' (did you mean 'cosine'?)");
  EXPECT_EQ(text({.kind = "cosine", .warmup = 5}),
            "schedule: cosine needs steps (0) above warmup (5)");
  EXPECT_EQ(text({.kind = "rsqrt"}), "schedule: rsqrt needs lr_reference above 0 (0)");
  EXPECT_EQ(text({.final = 0.5}),
            "lr_final: is for the schedules cosine and linear (0.5, and schedule is constant)");
  EXPECT_EQ(text({.kind = "linear", .steps = 9, .reference = 100}),
            "lr_reference: is for the schedule rsqrt (100, and schedule is linear)");
  EXPECT_NE(text({.lr = NAN}), "");
  EXPECT_EQ(text({}), "");
}

TEST(ema, fixed_decay__is_the_same_at_every_step) {
  const EmaSchedule s{.decay = 0.99};
  EXPECT_EQ(ema_decay_at(s, 0, 64), 0.99);
  EXPECT_EQ(ema_decay_at(s, 1000, 64), 0.99);
}

TEST(ema, halflife__halves_the_weight_of_the_past) {
  const EmaSchedule s{.halflife = 640};
  double kept = 1;
  for (int i = 0; i < 10; ++i) kept *= ema_decay_at(s, i, 64);
  EXPECT_NEAR(kept, 0.5, 1e-12);
}

TEST(ema, rampup__forgets_the_start_and_reaches_the_halflife) {
  const EmaSchedule s{.halflife = 1000, .rampup = 0.05};
  EXPECT_EQ(ema_decay_at(s, 0, 10), 0);
  EXPECT_NEAR(ema_decay_at(s, 100, 10), std::exp2(-10 / 50.0), 1e-12);
  EXPECT_NEAR(ema_decay_at(s, 1000000, 10), std::exp2(-10 / 1000.0), 1e-12);
}

}  // namespace
}  // namespace ebb::train
