#include "ranks/watch.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ebb::ranks {
namespace {

class WatchTest : public ::testing::Test {
 protected:
  static std::vector<Member> members() {
    std::vector<Member> out;
    for (int64_t r = 0; r < 3; ++r) out.push_back({r, "gpu07", 100 + r});
    return out;
  }
  // All are heard of at `now`, in `phase` of `step` since `seconds`.
  void all_at(int64_t step, Phase phase, double now, double seconds = 0) {
    for (int64_t r = 0; r < 3; ++r) at(r, step, phase, now, seconds);
  }
  void at(int64_t rank, int64_t step, Phase phase, double now, double seconds = 0,
          double longest_step = 1) {
    Progress p{.step = step, .phase = phase, .seconds = seconds};
    p.longest[static_cast<size_t>(Phase::step)] = longest_step;
    watch_.progressed(rank, p, now);
  }
  std::string verdict(double now) { return watch_.verdict(now).value_or(""); }

  Watch watch_{members(), Limits{}};
};

TEST(member, ranks_of_a_host__are_counted) {
  const Member all[] = {{0, "gpu07", 1}, {1, "gpu07", 2}, {2, "gpu08", 3}};
  EXPECT_EQ(ranks_beside(all, 0), 2);
  EXPECT_EQ(ranks_beside(all, 1), 2);
  EXPECT_EQ(ranks_beside(all, 2), 1);
}

TEST_F(WatchTest, steps__no_verdict) {
  for (int t = 0; t < 1000; ++t) {
    all_at(t, t % 2 == 0 ? Phase::batch : Phase::step, t);
    EXPECT_EQ(verdict(t), "");
  }
}

TEST_F(WatchTest, silence) {
  all_at(12, Phase::step, 100);
  at(0, 12, Phase::step, 114);
  at(1, 12, Phase::step, 114);
  EXPECT_EQ(verdict(114), "");
  EXPECT_EQ(verdict(116),
            "ranks: rank 2 (host gpu07, pid 102) gives no sign of life for 16 s: it is stopped, or "
            "its host or network is gone (step 12)");
}

TEST_F(WatchTest, closed_connection__after_the_others_had_a_moment) {
  all_at(12, Phase::batch, 100);
  watch_.lost(1, "ended without a word", 100);
  watch_.lost(2, "ended without a word", 100.5);
  EXPECT_EQ(verdict(100.9), "");
  EXPECT_EQ(verdict(101),
            "ranks: rank 1 (host gpu07, pid 101) ended without a word (step 12, preparing its "
            "batch)");
}

TEST_F(WatchTest, one_last_heard_of_some_steps_ago__is_at_the_step_of_rank_0) {
  all_at(12, Phase::batch, 100);
  at(0, 15, Phase::step, 100.5);
  watch_.lost(1, "ended without a word", 100.5);
  EXPECT_EQ(verdict(102), "ranks: rank 1 (host gpu07, pid 101) ended without a word (step 15)");
}

TEST_F(WatchTest, orderly_leave__nothing) {
  all_at(12, Phase::batch, 100);
  watch_.left(2);
  watch_.lost(2, "ended without a word", 100);
  for (int t = 100; t < 130; ++t) {
    at(0, t, Phase::step, t);
    at(1, t, Phase::step, t);
    EXPECT_EQ(verdict(t), "");
  }
}

TEST_F(WatchTest, an_error_of_one__has_its_name) {
  watch_.failed(2, "toy: wrong", 5);
  EXPECT_EQ(verdict(5.5), "");
  EXPECT_EQ(verdict(6), "toy: wrong  on rank 2 (host gpu07, pid 102)");
}

TEST_F(WatchTest, an_error_of_all__is_said_once_and_at_once) {
  for (int64_t r = 0; r < 3; ++r) watch_.failed(r, "toy: wrong", 5);
  EXPECT_EQ(verdict(5), "toy: wrong");
}

TEST_F(WatchTest, a_batch_that_others_wait_for) {
  all_at(12, Phase::step, 0);
  for (int t = 0; t <= 60; ++t) {
    at(0, 12, Phase::step, t, t);
    at(1, 12, Phase::batch, t, t);
    at(2, 12, Phase::step, t, t);
    const std::string found = verdict(t);
    if (t <= 50) {
      EXPECT_EQ(found, "") << t;
    } else {
      EXPECT_EQ(found, str("ranks: rank 1 (host gpu07, pid 101) keeps the others waiting (step 12, "
                           "preparing its batch; for ",
                           t, " s, limit 50 s)"));
    }
  }
}

TEST_F(WatchTest, slow_batches_of_all__no_verdict) {
  for (int t = 0; t <= 100; ++t) {
    all_at(12, Phase::batch, t, t);
    EXPECT_EQ(verdict(t), "");
  }
}

TEST_F(WatchTest, a_step_that_hangs__by_what_steps_took) {
  all_at(12, Phase::step, 61, 61);
  EXPECT_EQ(verdict(61), "ranks: none of the 3 ranks gets on (step 12, for 61 s, limit 60 s)");
  for (int64_t r = 0; r < 3; ++r) at(r, 12, Phase::step, 61, 61, 5);  // 20 times 5 s
  EXPECT_EQ(verdict(61), "");
  for (int64_t r = 0; r < 3; ++r) at(r, 1, Phase::step, 61, 61, 0);  // the first
  EXPECT_EQ(verdict(61), "");
}

TEST_F(WatchTest, rank_0_alone__as_long_as_it_takes) {
  for (int t = 0; t <= 300; ++t) {
    all_at(12, Phase::batch, t, t);
    at(2, 12, Phase::step, t, t);
    at(0, 12, Phase::alone, t, t);
    EXPECT_EQ(verdict(t), "");
  }
  // the others have waited long, but not for each other
  all_at(12, Phase::step, 301, 301);
  at(0, 12, Phase::batch, 301, 0);
  EXPECT_EQ(verdict(301), "");
}

TEST_F(WatchTest, one_that_still_compiles__may) {
  for (int t = 0; t <= 300; ++t) {
    all_at(0, Phase::join, t, t);
    at(1, 0, Phase::start, t, t);
    EXPECT_EQ(verdict(t), "");
  }
  all_at(0, Phase::join, 700, 700);
  at(1, 0, Phase::start, 700, 700);
  EXPECT_EQ(verdict(700),
            "ranks: rank 1 (host gpu07, pid 101) keeps the others waiting (before the first step; "
            "for 700 s, limit 600 s)");
}

TEST_F(WatchTest, gather__somebody_does_not_come) {
  watch_.waits_in_gather(0, 1);
  watch_.waits_in_gather(2, 5);
  for (int t = 5; t < 602; ++t) {
    all_at(0, Phase::start, t, t);
    ASSERT_EQ(verdict(t), "") << t;
  }
  all_at(0, Phase::start, 602, 602);
  EXPECT_EQ(verdict(602),
            "ranks: rank 1 (host gpu07, pid 101) does not come to where the others wait for 601 s "
            "(before the first step)");
  watch_.gathered();
  EXPECT_EQ(verdict(602), "");
}

TEST_F(WatchTest, gather__somebody_has_left) {
  all_at(3, Phase::batch, 1);
  watch_.waits_in_gather(0, 1);
  watch_.left(1);
  EXPECT_EQ(verdict(1),
            "ranks: rank 1 (host gpu07, pid 101) has left, and others wait for it (step 3, "
            "preparing its batch)");
}

}  // namespace
}  // namespace ebb::ranks
