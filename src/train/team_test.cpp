// Ranks of one host in threads: what they ask for together.
#include "train/team.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "core/host_memory.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ranks/socket.h"
#include "support/files.h"

namespace ebb::train {
namespace {

// Runs work(team, rank) on two ranks.
void on_two_ranks(const auto& work) {
  ranks::Socket listener = ranks::listen_at(0, ranks::Reach::this_host);
  ranks::Launch launch{.ranks = 2, .local_ranks = 2, .token = "team"};
  launch.addresses = {"127.0.0.1"}, launch.port = ranks::port_of(listener);
  const auto rank = [&](int64_t r, ranks::Socket s) {
    ranks::Launch as = launch;
    as.rank = as.local_rank = r;
    ranks::TcpGroup group(as, {}, std::move(s));
    work(Team(&group), r);
  };
  std::jthread other([&] { rank(1, {}); });
  rank(0, std::move(listener));
}

TEST(team, memory_of_the_ranks_of_a_host__is_asked_for_together) {
  on_two_ranks([](const Team& team, int64_t) {
    team.check_host_memory(1 << 20);
    // either alone has room, both together have not
    testing::expect_error([&] { team.check_host_memory(free_host_memory() / 5 * 3); },
                          "(2 ranks, together ");
  });
}

TEST(team, choices_of_kernels__are_those_of_rank_0) {
  const testing::Folder folder;
  const Context device = open_context("cpu", {.threads = 1});
  const std::string key = tuning_key(*device.device, {&ops::def::conv2d_dx(), ops::Conv2dDx{}});
  for (int r = 0; r < 2; ++r)
    testing::put_file(folder / str(r), str(key, " | some_kernel turn=", r, " | 1.0 us\n"));
  std::array<std::string, 2> before, after;
  on_two_ranks([&](const Team& team, int64_t r) {
    Context context = device;
    context.tuner = std::make_shared<Tuner>(folder / str(r), Tuner::Effort::fast);
    const auto i = static_cast<size_t>(r);
    before[i] = context.tuner->choices_for(*device.device);
    EXPECT_EQ(team.share_choices(context), r == 1);
    after[i] = context.tuner->choices_for(*device.device);
    EXPECT_FALSE(team.share_choices(context));
  });
  EXPECT_NE(before[0], before[1]);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[0]);
}

TEST(team, alone__asks_nobody) { Team(nullptr).check_host_memory(int64_t{1} << 60); }

}  // namespace
}  // namespace ebb::train
