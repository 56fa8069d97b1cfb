// Edge cases of samplers: few, near or extreme levels, denoisers that fail, options without effect.
// Every fault is reported.
#include <gtest/gtest.h>

#include "diffusion/solver/formulas.h"
#include "support/files.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::karras;
using testing::run_toy;
using testing::ToyModel;

ToyModel constant(double d) {
  return {.denoise = [d](double, double) { return d; },
          .uncond = [d](double, double) { return d; }};
}

// ---- what is not finite --------------------------------------------------------------------

TEST(samplers, last_prediction_that_is_not_finite__is_an_error) {
  const ToyModel model{.denoise = [](double x, double sigma) {
    return sigma > 0.5 ? x : std::numeric_limits<double>::quiet_NaN();
  }};
  expect_error(
      [&] {
        run_toy("euler", {1.0}, {.sigmas = {2, 1, 0.5, 0}}, model);
      },
      "the denoiser's prediction is not finite at noise level 0.5");
}

TEST(samplers, noise_that_is_not_finite__is_an_error) {
  ToyModel model = constant(0);
  model.noise = [](std::span<double> z, const NoiseDraw&) {
    std::fill(z.begin(), z.end(), std::numeric_limits<double>::infinity());
  };
  expect_error(
      [&] {
        run_toy("euler_ancestral", {1.0}, {.sigmas = {2, 1}}, model);
      },
      "the state is not finite at the end");
}

// ---- levels --------------------------------------------------------------------------------

TEST(samplers, nearly_repeated_levels__count_once) {
  for (const Sampler* s : all_samplers()) {
    if (s->adaptive) continue;
    const std::vector<double> near = {10, 1, 1 - 1e-15, 1 - 1e-9, 0.3, 0}, once = {10, 1, 0.3, 0};
    const testing::ToyRun got = run_toy(s->name, {3.0}, {.sigmas = near});
    const testing::ToyRun want = run_toy(s->name, {3.0}, {.sigmas = once});
    EXPECT_EQ(got.evaluations, want.evaluations) << s->name;
    EXPECT_EQ(got.x, want.x) << s->name;
  }
}

TEST(samplers, nearly_repeated_levels_of_flow__count_once) {
  ToyModel model;
  model.denoise = testing::on_flow(model.denoise);
  model.uncond = testing::on_flow(model.uncond);
  for (const Sampler* s : all_samplers()) {
    if (s->adaptive || !s->flow) continue;
    const SampleCall near{.sigmas = {1, 0.7, 0.7 - 1e-15, 0.7 - 1e-9, 0.3, 0},
                          .space = Space::flow};
    const SampleCall once{.sigmas = {1, 0.7, 0.3, 0}, .space = Space::flow};
    EXPECT_EQ(run_toy(s->name, {0.3}, near, model).x, run_toy(s->name, {0.3}, once, model).x)
        << s->name;
  }
}

TEST(dpm_fast, one_level_and_0__is_denoised) {
  for (const char* name : {"dpm_fast", "dpm_adaptive"}) {
    const testing::ToyRun run = run_toy(name, {5.0}, {.sigmas = {3, 0}}, constant(0.4));
    EXPECT_EQ(run.x[0], 0.4) << name;
    EXPECT_EQ(run.evaluations, 1) << name;
  }
}

TEST(uni_pc, last_level_of_a_dialect__lies_below_the_others) {
  for (const double low : {0.001, 0.0004})
    expect_error(
        [&] {
          run_toy("uni_pc", {1.0}, {.sigmas = {2, 1, low, 0}, .dialect = "comfy"});
        },
        "which is not below the last level");
  EXPECT_EQ(run_toy("uni_pc", {1.0}, {.sigmas = {2, 1, 1e-4, 0}}).evaluations, 3);
}

TEST(dpmpp_2s_ancestral, middle_of_a_step_from_flows_1__lies_within_it) {
  ToyModel model;
  model.denoise = testing::on_flow(model.denoise);
  const SampleCall call{
      .sigmas = {1, 0.99996, 0.9}, .options = {{"eta", "0"}}, .space = Space::flow};
  const std::vector<double> asked = run_toy("dpmpp_2s_ancestral", {0.1}, call, model).asked;
  EXPECT_LT(asked.at(1), 1);
  EXPECT_GT(asked.at(1), asked.at(2));
}

TEST(plms, step_to_0__ends_with_the_data) {
  const ToyModel model{.denoise = [](double, double sigma) { return sigma < 1 ? 0.362 : -1; }};
  EXPECT_NEAR(run_toy("plms", {3.0}, {.sigmas = {4, 2, 1, 0.5, 0}}, model).x[0], 0.362, 1e-12);
  EXPECT_GT(
      std::abs(
          run_toy("plms", {3.0}, {.sigmas = {4, 2, 1, 0.5, 0}, .dialect = "kdiff"}, model).x[0] -
          0.362),
      0.01);
}

// ---- ancestral steps -----------------------------------------------------------------------

TEST(ancestral_step, at_eta_1__has_the_digits_of_its_closed_form) {
  for (const double from : {14.6, 1e4, 1e8}) {
    const AncestralStep step = ancestral_step_ve(from, 0.03, 1);
    EXPECT_NEAR(step.down, 0.03 * 0.03 / from, 1e-15 * step.down) << from;
    EXPECT_NEAR(step.noise * step.noise + step.down * step.down, 0.03 * 0.03, 1e-18) << from;
  }
}

TEST(ancestral_step, of_a_short_step__has_the_digits_of_its_length) {
  const double from = 2, to = 2 - 1e-12;
  const double square = (from - to) / from * (1 + to / from);
  EXPECT_NEAR(ancestral_step_ve(from, to, 0.7).noise, 0.7 * to * std::sqrt(square), 1e-18);
}

TEST(ancestral_step, from_an_infinite_level__is_all_noise) {
  const AncestralStep step = ancestral_step_ve(std::numeric_limits<double>::infinity(), 0.5, 1);
  EXPECT_EQ(step.noise, 0.5);
  EXPECT_EQ(step.down, 0);
}

// All of the noise is renewed where eta is that large: the step goes to D, then up again.
TEST(dpm_2_ancestral, step_to_0_and_up_again__has_the_variance_of_the_level) {
  const SampleCall call{.sigmas = {10, 0.3}, .options = {{"eta", "3"}}};
  ToyModel model = constant(0);
  model.noise = [](std::span<double> z, const NoiseDraw&) { z[0] = 1; };
  EXPECT_NEAR(run_toy("dpm_2_ancestral", {10.0}, call, model).x[0], 0.3, 1e-15);
  SampleCall known = call;
  known.dialect = "kdiff";
  EXPECT_EQ(run_toy("dpm_2_ancestral", {10.0}, known, model).x[0], 0);
}

// ---- dpm_adaptive --------------------------------------------------------------------------

TEST(dpm_adaptive, steps_that_get_nowhere__are_an_error) {
  const auto call = [](const char* h, const char* icoeff) {
    return SampleCall{.sigmas = {10, 0.1}, .options = {{"h_init", h}, {"icoeff", icoeff}}};
  };
  expect_error([&] { count("dpm_adaptive", call("1e-20", "0")); }, "are too small at noise level");
  expect_error([&] { count("dpm_adaptive", call("1e-9", "0")); }, "after 100000");
  expect_error([&] { run_toy("dpm_adaptive", {3.0}, call("1e-20", "1")); }, "are too small");
}

TEST(dpm_adaptive, coefficients_that_are_not_finite__are_refused) {
  for (const char* name : {"pcoeff", "icoeff", "dcoeff", "rtol", "atol"})
    for (const char* value : {"nan", "inf"})
      EXPECT_THROW(check_options("dpm_adaptive", {{name, value}}), Error) << name << value;
}

// ---- options -------------------------------------------------------------------------------

TEST(options, that_mean_nothing__are_refused) {
  const auto expect = [](std::string_view sampler, const OptionTexts& options,
                         std::string_view part) {
    expect_error([&] { check_options(sampler, options); }, part);
  };
  expect("euler", {{"path", "nan"}}, "path: unknown name 'nan'");
  expect("euler", {{"s_tmin", "inf"}}, "s_tmin must be finite");
  expect("sa_solver", {{"start", "nan"}}, "must not be below end");
  expect("sa_solver", {{"end", "nan"}}, "end must be finite");
  expect("sa_solver", {{"start", "1"}, {"end", "2"}}, "must not be below end");
  expect("restart", {{"restart_to", "inf"}}, "restart_to must be finite (got inf)");
  for (const char* name : {"restart_steps", "restart_to", "s_noise"})
    expect("restart", {{"restarts", "0"}, {name, "3"}}, "there is no way back");
  expect_error(
      [] {
        run_toy("er_sde", {1.0},
                {.sigmas = {2, 1}, .options = {{"solver_type", "ode"}, {"eta", "0.5"}}});
      },
      "eta must be 0 or 1 with solver_type ode (0.5)");
}

// Options of ways back are no news to a run that has none.
TEST(restart, options_of_a_way_that_is_not_gone__are_refused) {
  const auto run = [](int64_t steps, double last, const OptionTexts& options) {
    SampleCall call{.sigmas = karras(steps, last, 14), .options = options};
    return count("restart", call).evaluations;
  };
  EXPECT_GT(run(24, 0.03, {{"restart_to", "3"}}), 0);
  EXPECT_GT(run(8, 0.03, {{"restarts", "1"}, {"restart_steps", "3"}, {"restart_to", "3"}}), 0);
  EXPECT_EQ(run(8, 0.03, {{"restart_to", "2"}}), 15);  // what it is anyway
  const OptionTexts each = {{"restart_steps", "3"}, {"restart_from", "1"}, {"restart_to", "3"}};
  for (const auto& option : each)
    expect_error([&] { run(8, 0.03, {option}); }, "restart: 8 steps make no way back, so ");
  // No level lies near restart_from but the last one, or the way would lead down.
  expect_error([&] { run(24, 5, {{"restart_from", "0.2"}}); }, "no level lies between");
  EXPECT_GT(run(24, 5, {}), 0);
}

// ---- heunpp2_exact -------------------------------------------------------------------------

// Slopes that run along a parabola in sigma, whatever x is.
TEST(heunpp2_exact, slopes_on_a_parabola__are_integrated_exactly) {
  const auto slope = [](double s) { return 2 - 3 * s + 0.5 * s * s; };
  const auto integral = [](double s) { return 2 * s - 1.5 * s * s + s * s * s / 6; };
  std::vector<double> seen;
  SampleCall call{.sigmas = {5, 4, 2.5, 1}};
  HostLatents<double> latents(1,
                              [&](std::span<const double> x, double s, std::span<double> d,
                                  std::span<double>) { d[0] = x[0] - s * slope(s); },
                              {});
  call.progress = [&](const Progress& p) {
    seen.push_back(latents.values(p.x)[0]);
    return true;
  };
  sample("heunpp2_exact", latents, latents.put(std::vector<double>{1.0}), call);
  EXPECT_NEAR(seen.at(0), 1 + integral(4) - integral(5), 1e-12);
}

}  // namespace
}  // namespace ebb
