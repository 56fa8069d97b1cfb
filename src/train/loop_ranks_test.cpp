// The loop on two ranks, which are threads of one process. What keeps others waiting for too long
// ends that process, so the work is done in one of its own.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "ranks/socket.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/thread_ranks.h"
#include "support/toy_run.h"
#include "train/run_folder.h"

namespace ebb::train {
namespace {

using testing::ThreadRanks;

// Whoever waits so long for another in a collective or a gather, ends the run.
constexpr double limit = 2.5;

void train_on_two_ranks(const TrainConfig& c, const Hooks& hooks) {
  ranks::Socket listener = ranks::listen_at(0, ranks::Reach::this_host);
  const int port = ranks::port_of(listener);
  ranks::Limits limits;
  limits.beat = 0.1;
  limits.gather = limits.first_step = limit;
  ThreadRanks(2).run([&](const std::shared_ptr<ThreadRanks::Member>& member) {
    ranks::Launch launch{.ranks = 2, .local_ranks = 2, .token = "loop"};
    launch.addresses = {"127.0.0.1"}, launch.port = port;
    launch.rank = launch.local_rank = member->rank();
    ranks::TcpGroup group(launch, limits,
                          member->rank() == 0 ? std::move(listener) : ranks::Socket());
    const auto device = std::make_shared<testing::FarDevice>();
    device->join_as(member);
    TrainJob job = testing::toy_job(c);
    const int64_t share = c.batch / 2;
    job.loss = testing::toy_loss(share);
    job.batches = [share](int64_t first) -> NextBatch {
      return [n = first, share]() mutable { return testing::toy_batch(n++, share); };
    };
    job.hooks = hooks;
    job.ranks = &group;
    train(std::move(job), {.device = device});
  });
}

// Whether a run that goes on draws the picture that is missing, for longer than ranks may wait for
// each other, and goes on behind it.
bool draws_a_missing_picture() {
  const testing::Folder folder;
  TrainConfig c = testing::toy_config(folder.path());
  c.schedule = "constant";
  c.sample_every = c.steps = 2;
  train(testing::toy_job(c), open_context("cpu", {.threads = 1}));
  c.resume = true;
  c.steps = 3;
  std::vector<int64_t> sampled;
  train_on_two_ranks(c, {.sample = [&](const TrainState& s, const auto&) {
                       sampled.push_back(s.step);
                       if (s.step == 2)
                         std::this_thread::sleep_for(std::chrono::duration<double>(1.6 * limit));
                     }});
  return sampled == std::vector<int64_t>{2, 3} && last_checkpoint(c.out) == 3;
}

TEST(train_on_ranks, missing_picture_that_takes_long__keeps_no_rank_waiting) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(draws_a_missing_picture() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ebb::train
