#include "ranks/launch.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb::ranks {
namespace {

using testing::expect_error;

TEST(launch, no_variables_and_one_rank__none) {
  EXPECT_FALSE(launch_of({}));
  EXPECT_FALSE(launch_of({{"HOME", "/root"}, {"MASTER_ADDR", "a"}, {"LOCAL_RANK", "3"}}));
  EXPECT_FALSE(launch_of({{"WORLD_SIZE", "1"}, {"RANK", "0"}}));
  EXPECT_FALSE(launch_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}));
}

const Environment torchrun = {{"RANK", "5"},           {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "gpu1"}, {"MASTER_PORT", "29500"}};

Environment with(Environment all, const std::string& name, const std::string& value) {
  if (value.empty())
    all.erase(name);
  else
    all[name] = value;
  return all;
}

TEST(launch, torchrun) {
  const auto l = launch_of(torchrun);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->how, "torchrun");
  EXPECT_EQ(l->rank, 5);
  EXPECT_EQ(l->ranks, 8);
  EXPECT_EQ(l->local_rank, 1);
  EXPECT_EQ(l->local_ranks, 4);
  EXPECT_EQ(l->addresses, std::vector<std::string>{"gpu1"});
  EXPECT_EQ(l->port, 29500);
  // its agent listens at the port itself
  const auto with_agent = launch_of(with(torchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"));
  EXPECT_EQ(with_agent->port, 29501);
  // what is left of a restarted run stays out of it
  EXPECT_NE(launch_of(with(torchrun, "TORCHELASTIC_RESTART_COUNT", "1"))->token, l->token);
}

TEST(launch, half_set_and_contradictory__says_which_variable) {
  const auto error = [](const std::string& name, const std::string& value, std::string_view part,
                        int line = __builtin_LINE()) {
    expect_error([&] { launch_of(with(torchrun, name, value)); }, part, line);
  };
  error("WORLD_SIZE", "", "torchrun must set WORLD_SIZE as well");
  error("RANK", "", "torchrun must set RANK as well");
  error("MASTER_ADDR", "", "torchrun must set MASTER_ADDR as well");
  error("MASTER_PORT", "", "torchrun must set MASTER_PORT as well");
  error("RANK", "8", "RANK must be below WORLD_SIZE (8 of 8, by torchrun)");
  error("RANK", "-1", "RANK of torchrun must be a number from 0 to 65536 (got '-1')");
  error("RANK", "two", "RANK of torchrun must be a number");
  error("WORLD_SIZE", "1e9", "WORLD_SIZE of torchrun must be a number from 1 to 65536");
  error("MASTER_PORT", "65536", "MASTER_PORT of torchrun must be a number from 1 to 65535");
  error("LOCAL_RANK", "4",
        "LOCAL_RANK must be below LOCAL_WORLD_SIZE, and these at most "
        "WORLD_SIZE (4 of 4 here, 8 in all, by torchrun)");
  error("LOCAL_WORLD_SIZE", "16", "(1 of 16 here, 8 in all");
}

TEST(launch, open_mpi__has_no_address_but_a_given_one) {
  const Environment mpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"SLURM_PROCID", "1"},  // of the daemon that started it
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "2"}};
  const auto l = launch_of(mpi);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->how, "Open MPI");
  EXPECT_EQ(l->rank, 3);
  EXPECT_EQ(l->local_rank, 1);
  EXPECT_TRUE(l->addresses.empty());
  const Environment named = with(mpi, "MASTER_ADDR", "::1");
  expect_error([&] { launch_of(named); }, "MASTER_ADDR needs MASTER_PORT beside it");
  EXPECT_EQ(launch_of(with(named, "MASTER_PORT", "4000"))->addresses,
            std::vector<std::string>{"::1"});
}

TEST(launch, mpich) {
  const auto l = launch_of(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(l);
  EXPECT_EQ(l->how, "MPICH");
  EXPECT_EQ(l->local_rank, 1);
}

const Environment slurm = {{"SLURM_JOB_ID", "123456"},
                           {"SLURM_NTASKS", "6"},
                           {"SLURM_STEP_ID", "2"},
                           {"SLURM_STEP_NUM_TASKS", "6"},
                           {"SLURM_PROCID", "4"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "1"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4,2"},
                           {"SLURM_STEP_NODELIST", "gpu[03-04]"}};

TEST(launch, slurm) {
  const auto l = launch_of(slurm);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->how, "Slurm");
  EXPECT_EQ(l->rank, 4);
  EXPECT_EQ(l->ranks, 6);
  EXPECT_EQ(l->local_rank, 0);
  EXPECT_EQ(l->local_ranks, 2);
  EXPECT_EQ(l->addresses, std::vector<std::string>{"gpu03"});
  EXPECT_GE(l->port, 20000);
  EXPECT_LT(l->port, 32000);
  EXPECT_EQ(l->token, "Slurm 123456.2");
  EXPECT_NE(launch_of(with(slurm, "SLURM_STEP_ID", "3"))->port, l->port);
  EXPECT_EQ(launch_of(with(slurm, "MASTER_PORT", "777"))->port, 777);
  EXPECT_EQ(launch_of(with(slurm, "MASTER_ADDR", "10.0.0.1"))->addresses,
            std::vector<std::string>{"10.0.0.1"});
  // srun that speaks PMI as well
  EXPECT_EQ(launch_of(with(with(slurm, "PMI_RANK", "4"), "PMI_SIZE", "6"))->how, "Slurm");
}

TEST(launch, in_an_allocation_but_not_by_srun__none) {
  EXPECT_FALSE(launch_of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}));  // salloc's shell
  EXPECT_FALSE(launch_of({{"SLURM_JOB_ID", "1"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_PROCID", "0"},  // sbatch's script
                          {"SLURM_LOCALID", "0"}}));
  EXPECT_FALSE(launch_of(with(slurm, "SLURM_STEP_ID", "4294967290")));  // an interactive step
}

TEST(launch, ebb_itself__comes_first) {
  Environment all = torchrun;
  all.insert({{"EBB_RANK", "0"},
              {"EBB_RANKS", "2"},
              {"EBB_LOCAL_RANK", "0"},
              {"EBB_LOCAL_RANKS", "2"},
              {"EBB_ADDRESS", "::1"},
              {"EBB_PORT", "4711"},
              {"EBB_LISTENER", "7"},
              {"EBB_RUN_TOKEN", "secret"}});
  const auto l = launch_of(all);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->how, "--gpus");
  EXPECT_EQ(l->listener, 7);
  EXPECT_EQ(l->token, "secret");
  EXPECT_EQ(launch_of(with(all, "EBB_RANK", "1"))->listener, -1);  // rank 0's alone
  expect_error([&] { launch_of(with(all, "EBB_PORT", "")); }, "must set EBB_PORT as well");
}

TEST(launch, first_host_of_slurms_lists) {
  EXPECT_EQ(first_host("gpu7"), "gpu7");
  EXPECT_EQ(first_host("gpu7,gpu8"), "gpu7");
  EXPECT_EQ(first_host("node[03-05,9],gpu7"), "node03");
  EXPECT_EQ(first_host("node[9,03-05]"), "node9");
  EXPECT_EQ(first_host("rack[1-2]n[10-19].cluster,x"), "rack1n10.cluster");
  for (const char* wrong : {"", ",a", "node[1-2", "node1-2]", "n[[1]]"})
    EXPECT_NE(testing::error_of([&] { first_host(wrong); }), "") << wrong;
}

TEST(launch, tasks_of_slurms_nodes) {
  EXPECT_EQ(tasks_of_node("4", 0), 4);
  EXPECT_EQ(tasks_of_node("4(x2),3", 1), 4);
  EXPECT_EQ(tasks_of_node("4(x2),3", 2), 3);
  EXPECT_EQ(tasks_of_node("4(x2),3", 3), 0);
  for (const char* wrong : {"a", "4(x)", "4(x2", "-1", "4(x2)),1"})
    expect_error([&] { tasks_of_node(wrong, 9); }, "tasks per node");
}

}  // namespace
}  // namespace ebb::ranks
