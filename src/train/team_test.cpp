// Ranks of one host in threads: what they ask for together.
#include "train/team.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/host_memory.h"
#include "ranks/socket.h"
#include "support/files.h"

namespace ebb::train {
namespace {

TEST(team, memory_of_the_ranks_of_a_host__is_asked_for_together) {
  ranks::Socket listener = ranks::listen_at(0, ranks::Reach::this_host);
  ranks::Launch launch{.ranks = 2, .local_ranks = 2, .token = "team"};
  launch.addresses = {"127.0.0.1"}, launch.port = ranks::port_of(listener);
  const auto rank = [&](int64_t r, ranks::Socket s) {
    ranks::Launch as = launch;
    as.rank = as.local_rank = r;
    ranks::TcpGroup group(as, {}, std::move(s));
    const Team team(&group);
    team.check_host_memory(1 << 20);
    // either alone has room, both together have not
    testing::expect_error([&] { team.check_host_memory(free_host_memory() / 5 * 3); },
                          "(2 ranks, together ");
  };
  std::jthread other([&] { rank(1, {}); });
  rank(0, std::move(listener));
}

TEST(team, alone__asks_nobody) { Team(nullptr).check_host_memory(int64_t{1} << 60); }

}  // namespace
}  // namespace ebb::train
