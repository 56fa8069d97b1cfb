// Schedules: published lists of noise levels.
#include <gtest/gtest.h>

#include "diffusion/levels/schedule.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

// The noise levels of latent diffusion's table.
constexpr double sd_min = 0.0291671582, sd_max = 14.6146412293;

const Discretisation& latent() {
  static const Discretisation d = discretisation({});
  return d;
}
const Discretisation& edm() {
  static const Discretisation d = discretisation({.levels = "edm"});
  return d;
}

void expect_levels(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  // The lists have six digits.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 6e-6 * want[i]) << i;
}

std::vector<double> six(std::string_view name, const Discretisation& d) {
  return noise_levels(name, d, {.steps = 6});
}

TEST(schedules, lists_of_six__equal_published_ones) {
  expect_levels(six("karras", latent()),
                {14.6146, 6.08215, 2.23215, 0.69257, 0.169757, 0.0291672, 0});
  expect_levels(six("karras", edm()), {80, 24.4083, 5.83895, 0.965417, 0.0850872, 0.002, 0});
  expect_levels(noise_levels("ve", edm(), {.steps = 6, .sigma_min = sd_min, .sigma_max = sd_max}),
                {14.6146, 4.21511, 1.21571, 0.350632, 0.101128, 0.0291672, 0});
  expect_levels(six("exponential", latent()),
                {14.6146, 4.21511, 1.21571, 0.350632, 0.101128, 0.0291672, 0});
  expect_levels(six("timesteps", latent()),
                {14.6146, 5.09241, 2.27973, 1.16286, 0.571189, 0.0291672, 0});
}

TEST(schedules, edm_discretisations__equal_the_references) {
  expect_levels(six("vp", edm()),
                {152.16697, 25.1488524, 6.11166251, 2.03442934, 0.723806767, 0.0104859928, 0});
  expect_levels(six("ve", edm()), {100, 18.205642, 3.31445402, 0.603417634, 0.109856054, 0.02, 0});
  for (const char* levels : {"edm", "iddpm"})
    expect_levels(six("iddpm", discretisation({.levels = levels})),
                  {80.2037018, 3.00710308, 1.37261644, 0.73067381, 0.33399025, 0.00642541277, 0});
}

TEST(schedules, normal__is_the_tables_own_levels) {
  const Discretisation d = discretisation({.levels = "linear", .timesteps = 50});
  const auto all = noise_levels("normal", d, {.steps = 50});
  for (size_t t = 0; t < 50; ++t) {
    const double sigma = d.sigmas[t];
    EXPECT_NEAR(all[49 - t], sigma, 1e-12 * sigma);
    EXPECT_NEAR(d.told_of(sigma), static_cast<double>(t), 1e-9);
  }
}

TEST(schedules, ends__come_from_the_call_then_the_schedule_then_the_network) {
  Discretisation d = edm();
  d.sigma_min = 0.01;
  d.sigma_max = 50;
  EXPECT_NEAR(noise_levels("karras", d, {.steps = 4})[0], 50, 1e-9);
  EXPECT_NEAR(noise_levels("karras", d, {.steps = 4})[3], 0.01, 1e-12);
  EXPECT_NEAR(noise_levels("karras", d, {.steps = 4, .sigma_max = 9})[0], 9, 1e-9);
  EXPECT_NEAR(noise_levels("ve", d, {.steps = 4})[0], 100, 1e-9);
  // The network knows no more than its table.
  EXPECT_NEAR(noise_levels("ve", latent(), {.steps = 4})[0], sd_max, 1e-8);
}

TEST(schedules, wrong_values__are_named) {
  const auto expect = [](std::string_view name, const ScheduleCall& call, std::string_view part) {
    expect_error([&] { noise_levels(name, edm(), call); }, part);
  };
  expect("karas", {}, "unknown name 'karas' (did you mean 'karras'?)");
  expect("karras", {.steps = 0}, "steps must be at least 1 (0)");
  expect("karras", {.sigma_max = 0.001}, "sigma_min (0.002) must be below sigma_max (0.001)");
  expect("karras", {.options = {{"rho", "0"}}}, "rho must be positive (0)");
  expect("karras", {.options = {{"rh", "7"}}}, "did you mean 'rho'?");
  expect("exponential", {.options = {{"rho", "7"}}}, "it has no options (got rho)");
  expect("iddpm", {.steps = 2000}, "fewer than 2000 noise levels");
  expect_error([] { noise_levels("karras", latent(), {.sigma_max = 100}); },
               "sigma_max (100) must lie in [0.0291672, 14.6146]");
  expect_error([] { discretisation({.levels = "scaled"}); }, "unknown levels 'scaled'");
}

}  // namespace
}  // namespace ebb
