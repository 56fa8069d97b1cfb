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

TEST(levels_of_run, web_uis_samplers_of_timesteps__start_below_the_level_of_their_noise) {
  const Discretisation sd = discretisation({});
  LevelsOfRun run{
      .sampler = "DDIM", .schedule = "auto", .steps = 12, .dialect = "a1111", .strength = 0.6};
  std::vector<double> want;
  for (const size_t t : {499, 416, 333, 250, 167, 84, 1}) want.push_back(sd.sigmas[t]);
  EXPECT_EQ(levels_of_run(run, sd), want);
  EXPECT_EQ(noise_level_of_run(run, sd), sd.sigmas[582]);
  run.sampler = "UniPC";
  const std::vector<double> levels = levels_of_run(run, sd);
  ASSERT_EQ(levels.size(), 8U);
  EXPECT_NEAR(levels[0], want[0], 1e-9 * want[0]);
  EXPECT_NEAR(levels[7], sd.sigmas[0], 1e-9 * sd.sigmas[0]);
  EXPECT_EQ(noise_level_of_run(run, sd), sd.sigmas[582]);
  run.strength = 0.05;  // not a step
  EXPECT_TRUE(levels_of_run(run, sd).empty());
  run = {.sampler = "PLMS", .schedule = "auto", .steps = 9, .dialect = "a1111"};
  EXPECT_EQ(levels_of_run(run, sd)[0], sd.sigmas[999]);  // the tenth of them
  EXPECT_EQ(noise_level_of_run(run, sd), std::nullopt);
  run.strength = 0.6, run.dialect = "ebb";
  EXPECT_EQ(noise_level_of_run(run, sd), std::nullopt);
}

TEST(levels_of_run, web_uis_lcm__has_50_timesteps) {
  const Discretisation sd = discretisation({});
  LevelsOfRun run{.sampler = "LCM", .schedule = "auto", .steps = 8, .dialect = "a1111"};
  std::vector<double> want;
  for (size_t i = 0; i < 8; ++i) want.push_back(sd.sigmas[999 - 140 * i]);
  EXPECT_EQ(timesteps_apart(run.dialect, run.sampler, sd), 20);
  EXPECT_EQ(sd.c_noise_of(sd.sigmas[20], 20), 19);
  EXPECT_EQ(sd.c_noise_of(sd.sigmas[998], 20), 999);
  const std::vector<double> levels = levels_of_run(run, sd);
  ASSERT_EQ(levels.size(), 9U);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(levels[i], want[i], 1e-9 * want[i]) << i;
  run.schedule = "karras";
  EXPECT_NEAR(levels_of_run(run, sd)[7], sd.sigmas[19], 1e-9);
  EXPECT_EQ(timesteps_apart("a1111", "euler", sd), 0);
  EXPECT_EQ(timesteps_apart("comfy", "lcm", sd), 1);
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
