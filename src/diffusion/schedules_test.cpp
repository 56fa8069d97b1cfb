// Schedules: published lists of noise levels.
#include "diffusion/schedules.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

// The noise levels of latent diffusion's table.
constexpr double sd_min = 0.0291671582, sd_max = 14.6146412293;
const DiffusionConfig latent{.precond = "eps", .betas = "scaled_linear"};

std::vector<double> levels(std::string_view name, ScheduleOptions options,
                           const DiffusionConfig& config = {}) {
  return noise_levels(find_schedule(name), options, Precond(config));
}

void expect_levels(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  // The lists have six digits.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 6e-6 * want[i]) << i;
}

TEST(schedules, lists_of_six__equal_published_ones) {
  const ScheduleOptions sd{.steps = 6, .sigma_min = sd_min, .sigma_max = sd_max};
  expect_levels(levels("karras", sd), {14.6146, 6.08215, 2.23215, 0.69257, 0.169757, 0.0291672, 0});
  expect_levels(levels("karras", {.steps = 6}),
                {80, 24.4083, 5.83895, 0.965417, 0.0850872, 0.002, 0});
  expect_levels(levels("ve", sd), {14.6146, 4.21511, 1.21571, 0.350632, 0.101128, 0.0291672, 0});
  expect_levels(levels("timesteps", {.steps = 6}, latent),
                {14.6146, 5.09241, 2.27973, 1.16286, 0.571189, 0.0291672, 0});
}

TEST(schedules, edm_discretisations__equal_the_references) {
  expect_levels(levels("vp", {.steps = 6}),
                {152.16697, 25.1488524, 6.11166251, 2.03442934, 0.723806767, 0.0104859928, 0});
  expect_levels(levels("ve", {.steps = 6}),
                {100, 18.205642, 3.31445402, 0.603417634, 0.109856054, 0.02, 0});
  for (const char* precond : {"edm", "iddpm"})
    expect_levels(levels("iddpm", {.steps = 6}, {.precond = precond}),
                  {80.2037018, 3.00710308, 1.37261644, 0.73067381, 0.33399025, 0.00642541277, 0});
}

TEST(schedules, timesteps__are_the_tables_own_levels) {
  const Precond p({.precond = "v", .timesteps = 50});
  const auto all = noise_levels(find_schedule("timesteps"), {.steps = 50}, p);
  for (size_t t = 0; t < 50; ++t) {
    const double sigma = p.table().sigma[t];
    EXPECT_NEAR(all[49 - t], sigma, 1e-12 * sigma);
    EXPECT_NEAR(p.at(sigma).noise, static_cast<double>(t), 1e-9);
  }
}

TEST(schedules, every_one__gives_falling_levels_for_any_number_of_steps) {
  for (const Schedule* s : all_schedules())
    for (const int64_t n : {1, 2, 3, 5, 10, 50, 150}) {
      const auto list = noise_levels(*s, {.steps = n}, Precond(latent));
      EXPECT_EQ(static_cast<int64_t>(list.size()), n + 1) << s->name;
      EXPECT_EQ(list.back(), 0);
    }
}

TEST(schedules, ends__come_from_options_then_config_then_schedule) {
  const DiffusionConfig config{.sigma_min = 0.01, .sigma_max = 50};
  EXPECT_NEAR(levels("karras", {.steps = 4}, config)[0], 50, 1e-9);
  EXPECT_NEAR(levels("karras", {.steps = 4}, config)[3], 0.01, 1e-12);
  EXPECT_NEAR(levels("karras", {.steps = 4, .sigma_max = 9}, config)[0], 9, 1e-9);
  // The network knows no more than its table.
  EXPECT_NEAR(levels("karras", {.steps = 4}, latent)[0], sd_max, 1e-8);
}

TEST(schedules, of_a_config__is_the_published_one) {
  EXPECT_EQ(default_schedule({}).name, "karras");
  EXPECT_EQ(default_schedule({.precond = "ve"}).name, "ve");
  EXPECT_EQ(default_schedule({.precond = "iddpm"}).name, "iddpm");
  EXPECT_EQ(default_schedule(latent).name, "timesteps");
}

TEST(schedules, wrong_values__are_named) {
  expect_error([] { find_schedule("karas"); }, "unknown name 'karas' (did you mean 'karras'?)");
  expect_error([] { levels("karras", {.steps = 0}); }, "steps must be at least 1 (0)");
  expect_error([] { levels("karras", {.sigma_max = 0.001}); },
               "sigma_min (0.002) must be below sigma_max (0.001)");
  expect_error([] { levels("karras", {.sigma_max = 100}, latent); },
               "sigma_max (100) must lie in [0.0291672, 14.6146]");
  expect_error([] { levels("timesteps", {}); }, "timesteps");
  expect_error([] { levels("iddpm", {.steps = 2000}); }, "fewer than 2000 noise levels");
}

}  // namespace
}  // namespace ebb
