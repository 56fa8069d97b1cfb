// The levels of a run by the rules of programs.
#include "diffusion/start/levels_of_run.h"

#include <gtest/gtest.h>

#include "diffusion/levels/schedule.h"
#include "support/files.h"

namespace ebb {
namespace {

TEST(levels_of_run, comfyui__leaves_the_last_but_one_out_of_a_longer_list) {
  const Discretisation sd = discretisation({});
  LevelsOfRun run{.sampler = "DPM2", .schedule = "normal", .steps = 10, .dialect = "comfy"};
  std::vector<double> longer = noise_levels("normal", sd, {.steps = 11, .dialect = run.dialect});
  longer.erase(longer.end() - 2);
  EXPECT_EQ(levels_of_run(run, sd), longer);
  run.sampler = "euler";
  EXPECT_EQ(levels_of_run(run, sd), noise_levels("normal", sd, {.steps = 10, .dialect = "comfy"}));
}

TEST(levels_of_run, strength__keeps_the_end_by_the_dialects_rule) {
  const Discretisation sd = discretisation({});
  LevelsOfRun run{.sampler = "euler", .schedule = "karras", .steps = 20, .strength = 0.5};
  EXPECT_EQ(levels_of_run(run, sd).size(), 11U);
  run.dialect = "a1111";
  EXPECT_EQ(levels_of_run(run, sd).size(), 12U);
  run.dialect = "comfy";
  EXPECT_EQ(levels_of_run(run, sd).size(), 21U);
  EXPECT_LT(levels_of_run(run, sd)[0], 5);
}

TEST(levels_of_run, options_of_auto__are_an_error_that_names_the_schedule) {
  LevelsOfRun run{.sampler = "DPM++ 2M Exponential", .schedule = "auto", .options = {{"rho", "3"}}};
  testing::expect_error([&] { levels_of_run(run, discretisation({})); },
                        "schedule: auto has no options; give its name, exponential here (rho)");
  run.schedule = "karras";
  EXPECT_EQ(levels_of_run(run, discretisation({})).size(), 19U);
}

TEST(fit_to_network, first_level__of_a_shifted_flow_model_is_shifted_too) {
  SampleCall call;
  fit_to_network(call, discretisation({.levels = "flow", .shift = 3}));
  EXPECT_EQ(call.space, Space::flow);
  EXPECT_NEAR(call.first_sigma, 0.9999667, 1e-7);
  EXPECT_TRUE(call.table.empty());
}

TEST(levels_with_steps, list_of_one_level__is_an_error) {
  LevelsOfRun run{.sampler = "euler", .schedule = "custom", .options = {{"sigmas", "5"}}};
  testing::expect_error([&] { levels_with_steps(run, discretisation({})); },
                        "custom gives no step here");
  run.options = {{"sigmas", "5,0"}};
  EXPECT_EQ(levels_with_steps(run, discretisation({})).size(), 2U);
}

}  // namespace
}  // namespace ebb
