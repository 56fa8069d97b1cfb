// Schedules: published lists of noise levels.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"
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
    EXPECT_NEAR(d.c_noise_of(sigma), static_cast<double>(t), 1e-9);
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

TEST(schedules, lists_of_six_for_latent_diffusion__equal_published_ones) {
  const std::map<std::string, std::vector<double>> want = {
      {"sgm_uniform", {14.6146, 5.9489, 2.91831, 1.61558, 0.932358, 0.493552, 0}},
      {"simple", {14.6146, 5.96313, 2.91831, 1.61289, 0.932358, 0.492409, 0}},
      {"ddim_uniform", {14.4386, 5.90645, 2.90712, 1.61289, 0.932358, 0.494697, 0.0413144, 0}},
      {"beta_continuous", {14.6146, 12.8218, 9.32448, 5.31933, 1.82204, 0.0291672, 0}},
      {"beta57", {14.6146, 6.02052, 2.25215, 1.02393, 0.496987, 0.207202, 0}},
      {"linear_quadratic", {14.6146, 14.4929, 14.3711, 14.2493, 12.5848, 7.83507, 0}},
      {"kl_optimal", {14.6146, 2.63289, 1.29477, 0.711627, 0.335637, 0.0291672, 0}},
      {"kl_optimal_open", {14.6146, 3.0807, 1.59707, 0.961588, 0.572914, 0.281838, 0.0291672}},
      {"align_your_steps", {14.6146, 4.58921, 2.3917, 1.39438, 0.743122, 0.288335, 0}},
      {"turbo", {14.6146, 8.3028, 5.08776, 3.32108, 2.27646, 1.61289, 0}},
      {"laplace", {14.6146, 1.58112, 1.11803, 0.894433, 0.632463, 0.0291672}},
  };
  for (const auto& [name, list] : want) {
    SCOPED_TRACE(name);
    expect_levels(six(name, latent()), list);
  }
}

TEST(schedules, lists_of_six_for_flow__equal_published_ones) {
  const Discretisation flow = discretisation({.levels = "flow", .shift = 3});
  expect_levels(six("simple", flow), {1, 0.937781, 0.857326, 0.75, 0.600719, 0.375562, 0});
  expect_levels(noise_levels("normal", flow, {.steps = 6, .dialect = "comfy"}),
                {1, 0.923343, 0.818923, 0.668327, 0.432225, 0.00892857, 0});
  expect_levels(noise_levels("sgm_uniform", flow, {.steps = 6, .dialect = "comfy"}),
                {1, 0.93771, 0.857692, 0.751121, 0.602151, 0.379195, 0});
  // Of our own a level is shifted once.
  EXPECT_NEAR(six("normal", flow)[5], flow.sigmas[0], 1e-12);
  expect_levels(six("flow", flow), {1, 0.9375, 0.857143, 0.75, 0.6, 0.375, 0});
  expect_levels(six("flux", flow), {1, 0.940444, 0.86332, 0.759511, 0.612267, 0.387119, 0});
  expect_levels(six("bong_tangent_unscaled", flow),
                {1, 0.92897, 0.797686, 0.5, 0.185601, 0.0568022, 0});
}

TEST(schedules, every_one__falls_to_its_end_for_any_number_of_steps) {
  for (const Schedule* s : all_schedules()) {
    if (s->name == "custom") continue;
    const Discretisation d =
        s->space == Space::flow ? discretisation({.levels = "flow"}) : latent();
    for (int64_t n = 1; n <= 1000; n += n < 60 ? 1 : 47) {
      if ((s->name == "turbo" && n > 10) || (s->name == "iddpm" && n > 700)) break;
      const auto list = noise_levels(s->name, d, {.steps = n});
      if (s->exact_count) {
        const bool one_more = s->to_zero || s->name == "log_snr";  // ends at the smallest level
        EXPECT_EQ(static_cast<int64_t>(list.size()), n + (one_more ? 1 : 0)) << s->name;
      }
      EXPECT_EQ(list.back() == 0, s->to_zero) << s->name << ' ' << n;
      EXPECT_GT(list.front(), 0) << s->name;
    }
  }
}

TEST(schedules, custom__is_what_was_given) {
  EXPECT_EQ(noise_levels("custom", latent(), {.options = {{"sigmas", "14.6, 7;3 0"}}}),
            (std::vector<double>{14.6, 7, 3, 0}));
  expect_error(
      [] {
        noise_levels("custom", latent(), {.options = {{"sigmas", "3,7"}}});
      },
      "levels must fall (3, then 7)");
  expect_error([] { noise_levels("custom", latent(), {}); }, "needs its levels");
  expect_error(
      [] {
        noise_levels("custom", latent(), {.options = {{"sigmas", "3,0"}, {"file", "a.txt"}}});
      },
      "custom: takes sigmas or file, not both (sigmas 3,0, file a.txt)");
}

TEST(schedules, custom__names_the_file_that_holds_no_levels) {
  const testing::Folder folder;
  const auto expect = [](const std::string& file, std::string_view what) {
    expect_error(
        [&] {
          noise_levels("custom", latent(), {.options = {{"file", file}}});
        },
        str("custom: ", what, "  ", file));
  };
  expect(folder.path(), "cannot read levels");
  expect(folder / "none", "cannot read levels");
  const std::string text = folder / "a.txt";
  testing::put_file(text, "14.6 7 these are words");
  expect(text, "levels must be numbers of at least 0 (got 'these')");
  testing::put_file(text, "14.6 nan");
  expect(text, "levels must be numbers of at least 0 (got 'nan')");
  testing::put_file(text, "3 7");
  expect(text, "levels must fall (3, then 7)");
  testing::put_file(text, " \n");
  expect(text, "there are no levels");
  expect("/dev/zero", "a file of levels must be below 4 MB");
}

TEST(schedules, options_that_make_all_levels_alike__are_refused) {
  const Discretisation flow = discretisation({.levels = "flow"});
  const auto expect = [](std::string_view name, const Discretisation& d, OptionTexts options,
                         std::string_view part) {
    expect_error([&] { noise_levels(name, d, {.steps = 3, .options = std::move(options)}); }, part);
  };
  for (const char* shift : {"1e308", "1e15", "1e8"})
    expect(
        "flow", flow, {{"shift", shift}},
        "schedule: flow gives 3 levels that are all alike (1 to 1): its options are too extreme");
  expect("flow", flow, {{"shift", "1e-300"}}, "schedule: flow gives no noise level at step 0 (");
  expect("karras", edm(), {{"rho", "1e308"}}, "schedule: karras gives 3 levels that are all alike");
  expect("karras", edm(), {{"rho", "1e-300"}}, "schedule: karras gives no noise level at step 0 (");
  expect("laplace", edm(), {{"mu", "1e308"}}, "all alike (80 to 80)");
  expect("laplace", edm(), {{"beta", "1e-300"}}, "all alike (1 to 1)");
  EXPECT_NO_THROW(noise_levels("flow", flow, {.steps = 1, .options = {{"shift", "1e308"}}}));
  EXPECT_NO_THROW(noise_levels("flow", flow, {.steps = 3, .options = {{"shift", "100"}}}));
}

TEST(schedules, ones_of_other_models__are_refused) {
  expect_error([] { six("flux2", latent()); }, "is for flow models (this one is ve)");
  expect_error([] { noise_levels("simple", latent(), {.sigma_max = 3}); }, "do not apply");
  expect_error([] { noise_levels("karras", latent(), {.denoise = 0}); }, "denoise must lie in");
  expect_error([] { noise_levels("turbo", latent(), {.steps = 11}); }, "turbo has 10 steps (11");
}

TEST(beta_quantile, fraction_below_it__is_the_requested_one) {
  for (const auto& [a, b] : {std::pair{0.6, 0.6}, {0.5, 0.7}, {2.0, 5.0}, {1.0, 1.0}})
    for (const double p : {1e-6, 0.01, 0.3, 0.5, 0.77, 0.999})
      EXPECT_NEAR(beta_share(beta_quantile(p, a, b), a, b), p, 1e-12) << a << ' ' << b;
  // The arcsine distribution.
  EXPECT_NEAR(beta_quantile(0.3, 0.5, 0.5), std::pow(std::sin(std::numbers::pi * 0.15), 2), 1e-13);
  EXPECT_EQ(beta_quantile(0, 0.6, 0.6), 0);
  EXPECT_EQ(beta_quantile(1, 0.6, 0.6), 1);
}

TEST(normal_quantile, fraction_below_it__is_the_requested_one) {
  for (const double p : {1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9})
    EXPECT_NEAR(0.5 * std::erfc(-normal_quantile(p) / std::numbers::sqrt2), p, 1e-14) << p;
}

TEST(levels, too_few_timesteps__are_refused) {
  for (const char* name : {"flow", "scaled_linear", "iddpm"})
    for (const int64_t count : {-5, 0, 1})
      expect_error([&] { discretisation({.levels = name, .timesteps = count}); },
                   "timesteps must ");
}

TEST(levels, of_latent_diffusion__equal_published_ones) {
  EXPECT_NEAR(latent().sigmas[0], 0.029167158152, 1e-11);
  EXPECT_NEAR(latent().sigmas[500], 1.618278826, 1e-8);
  EXPECT_NEAR(latent().c_noise_of(1), 353.890411, 1e-6);
  EXPECT_NEAR(latent().c_noise_of(5), 795.173078, 1e-6);
  EXPECT_EQ(latent().c_noise_of(5, true), 795);
  EXPECT_NEAR(latent().sigma_of_time(500.5), 1.620983194, 1e-8);
  const Discretisation zero = discretisation({.zero_snr = "comfy"});
  EXPECT_NEAR(zero.sigmas[999], 4518.76, 0.01);
  EXPECT_NEAR(zero.sigmas[998], 2254.24, 0.01);
  EXPECT_NEAR(zero.sigmas[500], 1.77455746, 1e-7);
  EXPECT_NEAR(discretisation({.zero_snr = "diffusers"}).sigmas[999], 4096, 0.01);
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
