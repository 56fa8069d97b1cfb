// Runs of several processes: how they start and how they end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <regex>
#include <thread>

#include "support/program.h"

namespace ebb::rank_processes_test {
namespace {

using testing::Output;

class Ranks : public testing::Program {
 protected:
  Output run(const std::string& words, const std::string& before = "") {
    // whose standard error is taken too, also of what runs in the background
    return testing::run_command(
        str("{ ", before, " '", testing::rank_program_path(), "' ", words, "; }"));
  }

  // All end with the code of a fault, and one line, which is like `line`, says why.
  void expect_end(const std::string& words, const std::string& line, int code = 2) {
    const auto start = std::chrono::steady_clock::now();
    const Output out = run(words);
    EXPECT_EQ(out.code, code) << out.text;
    EXPECT_TRUE(std::regex_match(out.text, std::regex("ebb: error: " + line + "\n")))
        << out.text << "expected: " << line;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  }
};

TEST_F(Ranks, copies_of_a_process__are_a_group) {
  const Output out = run("copies=3 gather times=2");
  EXPECT_EQ(out.code, 0);
  EXPECT_EQ(out.text, "of 0 the 0. of 1 the 0. of 2 the 0. of 0 the 1. of 1 the 1. of 2 the 1. \n");
}

TEST_F(Ranks, one_that_is_killed__ends_all) {
  expect_end("copies=3 kill rank=2",
             R"(ranks: rank 2 \(host \S+, pid \d+\) ended without a word \(step 3.*\))");
}

TEST_F(Ranks, rank_0_that_is_killed__ends_all_and_rank_1_says_so) {
  expect_end("copies=3 kill rank=0",
             R"(ranks: rank 0 \(host \S+, pid \d+\) ended without a word \(step \d\))");
}

TEST_F(Ranks, one_that_is_stopped__ends_all) {
  expect_end("copies=3 stop rank=1 silence=1.5 grace=0.5",
             R"(ranks: rank 1 \(host \S+, pid \d+\) gives no sign of life for 2 s: it is stopped, )"
             R"(or its host or network is gone \(step 3.*\))");
}

TEST_F(Ranks, rank_0_that_is_stopped__ends_all) {
  expect_end("copies=2 stop rank=0 silence=1.5 grace=0.5",
             R"(ranks: rank 0 \(host \S+, pid \d+\) gives no sign of life: it is stopped, or its )"
             R"(host or network is gone \(step \d\))");
}

TEST_F(Ranks, rank_0_that_is_stopped_and_goes_on__finds_that_all_is_said) {
  const Output out =
      run("copies=2 stop rank=0 silence=1 & sleep 2.5; "
          "kill -CONT $(cut -d' ' -f1 /proc/$!/task/$!/children); wait $!");
  EXPECT_EQ(out.code, 2);
  EXPECT_EQ(std::count(out.text.begin(), out.text.end(), '\n'), 1) << out.text;
}

TEST_F(Ranks, one_that_hangs__ends_all) {
  expect_end("copies=3 hang rank=1 batch=1",
             R"(ranks: rank 1 \(host \S+, pid \d+\) keeps the others waiting \(step 3, preparing )"
             R"(its batch; for 1 s, limit 1 s\))");
}

TEST_F(Ranks, a_collective_that_hangs__ends_all) {
  expect_end("copies=2 hang_all step=1 first=0.7",
             R"(ranks: none of the 2 ranks gets on \(step 3, for 1 s, limit 1 s\))");
}

TEST_F(Ranks, a_link_that_fails_while_all_wait__ends_them_with_its_words) {
  for (const char* rank : {"0", "2"})
    expect_end(str("copies=3 link batch=30 rank=", rank),
               str(R"(toy: the cable is out  on rank )", rank, R"( \(host \S+, pid \d+\))"));
}

TEST_F(Ranks, one_that_is_killed_and_breaks_the_links_of_others__is_named) {
  expect_end("copies=3 kill_with_link rank=2",
             R"(ranks: rank 2 \(host \S+, pid \d+\) ended without a word \(step 3.*\))");
}

TEST_F(Ranks, an_error_of_one__is_said_once_with_its_name) {
  expect_end("copies=3 fail rank=2",
             R"(toy: must be right \(1, not 2\)  on rank 2 \(host \S+, pid \d+\))");
  expect_end("copies=3 fail rank=0",
             R"(toy: must be right \(1, not 2\)  on rank 0 \(host \S+, pid \d+\))");
}

TEST_F(Ranks, the_same_error_of_all__is_said_once) {
  expect_end("copies=3 fail_all", "toy: nobody is right");
}

TEST_F(Ranks, an_error_that_leaves_the_group__ends_all_and_is_not_lost) {
  for (const char* rank : {"0", "1"}) {
    const Output out = run(str("copies=3 throw rank=", rank));
    EXPECT_EQ(out.code, 2);
    EXPECT_NE(out.text.find("ebb: error: toy: thrown\n"), std::string::npos) << out.text;
  }
}

TEST_F(Ranks, leaving_in_any_order__is_no_fault) {
  for (const char* rank : {"0", "1"}) {
    const Output out = run(str("copies=3 leave seconds=0.3 rank=", rank));
    EXPECT_EQ(out.code, 0);
    EXPECT_EQ(out.text, "");
  }
}

TEST_F(Ranks, one_that_left_and_is_waited_for__ends_the_others) {
  expect_end("copies=3 leave_early rank=2",
             R"(ranks: rank 2 \(host \S+, pid \d+\) has left, and others wait for it .*)");
}

TEST_F(Ranks, a_file_that_rank_0_writes_when_another_dies__is_finished) {
  const std::string file = folder_ / "file";
  expect_end(str("copies=2 write rank=1 file='", file, "'"),
             R"(ranks: rank 1 .* ended without a word \(step 7.*\))");
  EXPECT_EQ(testing::file_bytes(file), "whole");
}

TEST_F(Ranks, other_settings__are_refused_with_the_difference) {
  expect_end("copies=3 agree rank=1",
             R"(ranks: config.lr must be the same on all \(1 on ranks 0, 2; 2 on rank 1\))");
}

TEST_F(Ranks, a_signal_to_the_first_process__reaches_all) {
  const Output out = run("copies=3 signal & sleep 1; kill -TERM $!; wait $!", "exec");
  EXPECT_EQ(out.code, 128 + SIGTERM) << out.text;
}

TEST_F(Ranks, the_first_process_dies__the_others_end) {
  const Output out =
      run("copies=2 signal & sleep 1; P=$(cat /proc/$!/task/$!/children); kill -KILL $!; sleep 1; "
          "for p in $P; do grep -s ^State: /proc/$p/status | grep -v zombie; done; echo done");
  EXPECT_EQ(out.text, "done\n");
}

// Rank 1 is stopped first and goes on last: rank 0 has nothing of it to read when it goes on.
TEST_F(Ranks, a_stopped_run_that_goes_on__is_no_fault) {
  const Output out =
      run("copies=2 leave rank=9 seconds=4 silence=1.5 & sleep 0.3; "
          "set -- $! $(cat /proc/$!/task/$!/children); kill -STOP $3; sleep 0.2; kill -STOP $1 $2; "
          "sleep 2; kill -CONT $1 $2; sleep 0.3; kill -CONT $3; wait $1");
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(out.text, "");
}

// What Slurm's srun does: so many tasks with its variables.
TEST_F(Ranks, srun) {
  const std::string srun = folder_ / "srun";
  testing::put_file(srun, R"(#!/bin/bash
export SLURM_JOB_ID=$((RANDOM + 1)) SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$1 SLURM_NTASKS=9
export SLURM_STEP_NODELIST=localhost SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=$1
shift
for ((i = 0; i < SLURM_STEP_NUM_TASKS; ++i)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
done
wait
)");
  const Output out =
      testing::run_command(str("bash '", srun, "' 4 '", testing::rank_program_path(), "' gather"));
  EXPECT_EQ(out.text, "of 0 the 0. of 1 the 0. of 2 the 0. of 3 the 0. \n");
}

// ---- MPI -----------------------------------------------------------------------------------

class Mpi : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    if (testing::run_command("command -v mpirun").code != 0) GTEST_SKIP() << "there is no mpirun";
    const auto beside = std::filesystem::path(testing::rank_program_path()).parent_path();
    if (!std::filesystem::exists(beside / "libebb_mpi.so"))
      GTEST_SKIP() << "this build has no libebb_mpi.so";
  }
  // As root, on fewer cores than ranks, in a container that does not let processes read others.
  Output mpirun(int ranks, const std::string& words) {
    return run(words, str("mpirun --allow-run-as-root --oversubscribe --bind-to none ",
                          "--mca btl_vader_single_copy_mechanism none ",
                          "--mca plm_rsh_agent false -n ", ranks));
  }
};

TEST_F(Mpi, says_where_rank_0_is) {
  const Output out = mpirun(3, "gather");
  EXPECT_EQ(out.code, 0);
  EXPECT_EQ(out.text, "of 0 the 0. of 1 the 0. of 2 the 0. \n");
}

TEST_F(Mpi, collectives_of_2_and_4_ranks) {
  for (const int ranks : {2, 4}) {
    const Output out = mpirun(ranks, "collectives");
    EXPECT_EQ(out.code, 0);
    EXPECT_EQ(out.text, str(ranks, " ranks agree.\n"));
  }
}

TEST_F(Mpi, one_that_is_killed__ends_all) {
  const Output out = mpirun(2, "kill rank=1");
  EXPECT_NE(out.code, 0);
  EXPECT_TRUE(std::regex_search(out.text, std::regex("ebb: error: ranks: rank 1 .* ended without")))
      << out.text;
}

TEST_F(Mpi, ranks_that_it_did_not_start__are_refused) {
  expect_end("copies=2 collectives",
             R"(cpu: MPI must connect the ranks, so that mpirun or srun --mpi have to start them )"
             R"(\(MPI has rank 0 of 1, the run \d of 2\)  on rank \d .*)");
}

TEST_F(Ranks, without_mpi__says_what_is_missing) {
  const Output out = run("copies=2 collectives", "EBB_MPI=/nowhere/libebb_mpi.so");
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.text.find("ebb: error: mpi: libebb_mpi.so is missing: ebb is built with it where "
                          "MPI's headers are (Debian: libopenmpi-dev), and EBB_MPI says where it "
                          "is  /nowhere/libebb_mpi.so"),
            std::string::npos)
      << out.text;
}

}  // namespace
}  // namespace ebb::rank_processes_test
