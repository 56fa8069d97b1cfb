// Start rules: steps and levels for a strength, states, inpainting, hand-over.
#include <gtest/gtest.h>

#include <map>

#include "diffusion/start/inpaint.h"
#include "diffusion/start/refiner.h"
#include "diffusion/start/strength.h"
#include "support/files.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::run_toy;

const std::vector<double> levels = testing::karras(20, 0.03, 14.6);

// ---- strength ------------------------------------------------------------------------------

TEST(strength, steps_of_20__are_those_of_each_program) {
  // Lists' steps, steps that run.
  using Want = std::map<double, std::pair<int64_t, int64_t>>;
  const std::map<std::string, Want> want = {
      {"ebb",
       {{0, {20, 0}},
        {.02, {20, 0}},
        {.5, {20, 10}},
        {.75, {20, 15}},
        {.999, {20, 20}},
        {1, {20, 20}}}},
      {"comfy",
       {{0, {20, 0}},
        {.02, {1000, 20}},
        {.5, {40, 20}},
        {.75, {26, 20}},
        {.999, {20, 20}},
        {1, {20, 20}}}},
      {"a1111",
       {{0, {20, 1}},
        {.02, {20, 1}},
        {.5, {20, 11}},
        {.75, {20, 16}},
        {.999, {20, 20}},
        {1, {20, 20}}}},
      {"diffusers",
       {{0, {20, 0}},
        {.02, {20, 0}},
        {.5, {20, 10}},
        {.75, {20, 15}},
        {.999, {20, 19}},
        {1, {20, 20}}}},
      {"sdcpp",
       {{0, {20, 1}},
        {.02, {20, 1}},
        {.5, {20, 11}},
        {.75, {20, 16}},
        {.999, {20, 20}},
        {1, {20, 20}}}},
  };
  for (const auto& [dialect, rows] : want)
    for (const auto& [strength, counts] : rows) {
      const StartPlan p = plan_strength(dialect, 20, strength);
      EXPECT_EQ(p.steps, counts.first) << dialect << " " << strength;
      EXPECT_EQ(p.run, counts.second) << dialect << " " << strength;
      EXPECT_EQ(p.first, p.steps - p.run) << dialect << " " << strength;
      const std::vector<double> list = testing::karras(p.steps, 0.03, 14.6);
      const std::vector<double> part = planned_levels(list, p);
      ASSERT_EQ(part.size(), static_cast<size_t>(p.run) + 1);
      EXPECT_EQ(part[0], list[static_cast<size_t>(p.first)]);
    }
}

TEST(strength, rounding__is_that_of_each_program) {
  // 0.29 * 100 is 28.999... in double, 29 in f32.
  EXPECT_EQ(plan_strength("diffusers", 100, 0.29).run, 28);
  EXPECT_EQ(plan_strength("sdcpp", 100, 0.29).run, 30);
  // Flow pipelines round the steps left out.
  EXPECT_EQ(plan_strength("diffusers", 28, 0.6, {.space = Space::flow}).run, 17);
  EXPECT_EQ(plan_strength("diffusers", 28, 0.6).run, 16);
  const StartPlan exact = plan_strength("a1111", 20, 0.5, {.exact_steps = true});
  EXPECT_EQ(exact.steps, 40);
  EXPECT_EQ(exact.run, 20);
}

TEST(strength, wrong_values__are_named) {
  expect_error([] { plan_strength("comfi", 20, 0.5); }, "did you mean 'comfy'?");
  expect_error([] { plan_strength("ebb", 20, 1.5); }, "must lie in [0, 1] (1.5)");
  expect_error([] { plan_strength("ebb", 0, 1); }, "at least one step");
  expect_error([] { plan_strength("comfy", 20, 1e-9); }, "too little for 20 steps");
}

// ---- states --------------------------------------------------------------------------------

TEST(start_state, spaces__mix_data_and_noise) {
  const std::vector<double> data = {2, -1}, noise = {0.5, 3};
  std::vector<double> x(2);
  const std::span<const double> none;
  start_state<double>(data, noise, 4, {}, x);
  EXPECT_EQ(x, (std::vector<double>{4, 11}));
  start_state<double>(none, noise, 4, {.full_variance = true}, x);
  EXPECT_NEAR(x[1], 3 * std::sqrt(17), 1e-14);
  start_state<double>(data, noise, 0.75, {.space = Space::flow, .noise_scale = 8}, x);
  EXPECT_NEAR(x[0], 0.5 + 0.75 * 8 * 0.5, 1e-14);
  start_state<double>(data, none, 0.75, {.space = Space::flow}, x);
  finish_state<double>(x, 0.75, Space::flow);
  EXPECT_EQ(x, data);
  start_state<double>(data, noise, 4, {.extra_noise = 0.5}, x);
  EXPECT_EQ(x, (std::vector<double>{2 + 4.5 * 0.5, -1 + 4.5 * 3}));
  // sqrt(alpha_bar) x of level 4, taken for one of level 2.
  start_state<double>(data, noise, 2, {.noised_at = 4}, x);
  EXPECT_NEAR(x[1], std::sqrt(5. / 17) * 11, 1e-14);
  expect_error([&] { start_state<double>(data, none, 1, {}, std::span<double>(x).first(1)); },
               "must have 1 values");
}

TEST(starts_from_noise, largest_level__counts_for_comfyui_alone) {
  FirstNoise first{.dialect = "comfy", .sigma = 14.6146, .sigma_max = 14.61464};
  EXPECT_TRUE(starts_from_noise(first));
  first.has_data = true;
  EXPECT_TRUE(starts_from_noise(first));
  first.sigma = 14.614;
  EXPECT_FALSE(starts_from_noise(first));
  for (const char* other : {"ebb", "kdiff", "a1111", "diffusers", "sdcpp"})
    EXPECT_FALSE(starts_from_noise({.dialect = other, .sigma = 14.61464, .sigma_max = 14.61464}))
        << other;
}

TEST(starts_from_noise, samplers_of_sqrt_alpha_bar_x__start_from_noise_of_variance_1) {
  const auto whole = [](const char* dialect, const char* sampler, bool data = false,
                        bool leading = false) {
    return starts_from_noise({.dialect = dialect,
                              .sigma = 14.6,
                              .sigma_max = 14.6,
                              .sampler = sampler,
                              .has_data = data,
                              .leading = leading});
  };
  for (const char* sampler : {"ddim", "plms", "uni_pc_bh2"}) {
    EXPECT_TRUE(whole("a1111", sampler)) << sampler;
    EXPECT_FALSE(whole("a1111", sampler, true)) << sampler;
    EXPECT_TRUE(whole("diffusers", sampler)) << sampler;
    EXPECT_FALSE(whole("diffusers", sampler, true)) << sampler;
    EXPECT_FALSE(whole("ebb", sampler)) << sampler;
  }
  EXPECT_FALSE(whole("a1111", "dpmpp_2m"));
  EXPECT_TRUE(whole("diffusers", "dpmpp_2m"));
  EXPECT_FALSE(whole("diffusers", "euler_a"));
  EXPECT_TRUE(whole("diffusers", "euler_a", false, true));
}

// ---- stretches and hand-over ---------------------------------------------------------------

TEST(stretch, ends__are_as_requested) {
  const std::vector<double> s = {4, 3, 2, 1, 0};
  EXPECT_EQ(stretch_of(s, {}), s);
  EXPECT_EQ(stretch_of(s, {.first = 1, .last = 3}), (std::vector<double>{3, 2, 1}));
  EXPECT_EQ(stretch_of(s, {.last = 2, .finish = true}), (std::vector<double>{4, 3, 0}));
  EXPECT_EQ(stretch_of(s, {.last = 9, .finish = true}), s);
  EXPECT_EQ(stretch_of(s, {.first = 7}), (std::vector<double>{0}));
}

TEST(stretch, two_runs__are_one_for_samplers_without_memory) {
  for (const Space space : {Space::ve, Space::flow}) {
    const std::vector<double> s =
        space == Space::ve ? levels : std::vector<double>{1, .8, .5, .2, 0};
    testing::ToyModel model;
    if (space == Space::flow) model.denoise = testing::on_flow(model.denoise);
    const auto run = [&](const std::vector<double>& sigmas, const std::vector<double>& x) {
      return run_toy("euler", x, {.sigmas = sigmas, .space = space}, model).x;
    };
    const std::vector<double> start = {-6, 0.3, 3.1};
    const std::vector<double> whole = run(s, start);
    for (int64_t k = 1; k + 1 < static_cast<int64_t>(s.size()); ++k) {
      std::vector<double> x = run(stretch_of(s, {.last = k}), start);
      const double sigma = s[static_cast<size_t>(k)];
      finish_state<double>(x, sigma, space);  // handed over as data, and taken up without noise
      start_state<double>(x, std::span<const double>(), sigma, {.space = space}, x);
      x = run(stretch_of(s, {.first = k}), x);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], whole[i], 1e-10) << k;
    }
  }
}

TEST(refiner, switch__is_where_each_program_has_it) {
  EXPECT_EQ(timestep_cutoff(0.8), 200);
  EXPECT_EQ(timestep_cutoff(0.9995), 0);  // 0.5 goes to the even number
  const std::vector<double> timesteps = {981, 741, 501, 261, 200, 21};
  EXPECT_EQ(switch_below(timesteps, 200), 5);
  EXPECT_EQ(switch_below(timesteps, 0), 6);
  EXPECT_EQ(switch_by_steps(10, 0.8), 8);
  EXPECT_EQ(switch_by_steps(10, 1), 10);
  std::vector<double> table(1000);
  for (size_t i = 0; i < table.size(); ++i) table[i] = 0.01 * static_cast<double>(i + 1);
  // Level 2 is entry 199: 0.8 of the noise is gone.
  EXPECT_EQ(switch_by_level({10, 6, 2.01, 2, 1, 0}, table, 0.8), 3);
  EXPECT_EQ(switch_by_level({10, 6, 2, 1, 0}, table, 1), 4);
  expect_error([] { timestep_cutoff(1.2); }, "must lie in [0, 1] (1.2)");
}

// ---- inpainting ----------------------------------------------------------------------------

struct Seen {
  std::vector<double> input, denoised, uncond;
};
Seen evaluate(Inpaint<double> how, double sigma) {
  Seen out{{}, std::vector<double>(3), std::vector<double>(3)};
  const HostDenoise<double> inner = [&](std::span<const double> x, double, std::span<double> d,
                                        std::span<double> u) {
    out.input.assign(x.begin(), x.end());
    std::fill(d.begin(), d.end(), 50.0);
    std::fill(u.begin(), u.end(), 60.0);
  };
  const std::vector<double> x = {10, 20, 30};
  inpainting<double>(inner, std::move(how))(x, sigma, out.denoised, out.uncond);
  return out;
}

TEST(inpainting, known_regions__are_restored_before_and_after) {
  Inpaint<double> how{.data = {1, 2, 3}, .noise = {1, -1, 2}, .mask = {0, 0.5, 1}};
  Seen s = evaluate(how, 2);
  EXPECT_EQ(s.input, (std::vector<double>{3, 10, 30}));
  EXPECT_EQ(s.denoised, (std::vector<double>{1, 26, 50}));
  EXPECT_EQ(s.uncond, (std::vector<double>{1, 31, 60}));
  how.input = false;
  EXPECT_EQ(evaluate(how, 2).input, (std::vector<double>{10, 20, 30}));
  how = {.data = {1, 2, 3},
         .noise = {1, -1, 2},
         .mask = {0, 0.5, 1},
         .space = Space::flow,
         .output = false};
  s = evaluate(how, 0.25);
  EXPECT_EQ(s.input[0], 0.75 * 1 + 0.25 * 1);
  EXPECT_EQ(s.denoised, (std::vector<double>{50, 50, 50}));
}

TEST(inpainting, clean_input__has_no_noise_and_keeps_the_predicted_one) {
  const Seen s = evaluate({.data = {1, 2, 3},
                           .noise = {1, -1, 2},
                           .mask = {0, 0.5, 1},
                           .output = false,
                           .clean_input = true},
                          2);
  const double norm = std::sqrt(5);  // 1 / sqrt(alpha_bar)
  EXPECT_EQ(s.input, (std::vector<double>{norm, 10 + norm, 30}));
  EXPECT_EQ(s.denoised, (std::vector<double>{50 + 10 - norm, 50 + 20 - (10 + norm), 50}));
  EXPECT_EQ(s.uncond[0], 60 + 10 - norm);
}

TEST(inpainting, differential_masks__open_as_the_threshold_falls) {
  Inpaint<double> how{.data = {1, 2, 3}, .mask = {0.2, 0.5, 1}};
  how.threshold = [](double sigma) { return differential_threshold(sigma * 100, 1000, 0); };
  EXPECT_EQ(evaluate(how, 10).denoised, (std::vector<double>{1, 2, 50}));
  EXPECT_EQ(evaluate(how, 5).denoised, (std::vector<double>{1, 50, 50}));
  EXPECT_EQ(evaluate(how, 1).denoised, (std::vector<double>{50, 50, 50}));
  EXPECT_EQ(differential_threshold(5, 3, 3), 1);
}

TEST(inpainting, runs__end_at_the_known_data) {
  HostLatents<double> latents(
      2,
      inpainting<double>(
          [](std::span<const double> x, double sigma, std::span<double> d, std::span<double>) {
            for (size_t i = 0; i < x.size(); ++i) d[i] = testing::Mixture{}.denoise(x[i], sigma);
          },
          {.data = {0.25, 9}, .noise = {1, 1}, .mask = {0, 1}}),
      {});
  const std::vector<double> start = {-6, 3.1};
  const auto x = latents.values(sample("euler", latents, latents.put(start), {.sigmas = levels}));
  EXPECT_EQ(x[0], 0.25);
  EXPECT_NEAR(x[1], run_toy("euler", {3.1}, {.sigmas = levels}).x[0], 1e-12);
}

TEST(inpainting, known_regions__are_restored_where_each_program_does) {
  const auto parts = [](const char* dialect, const char* sampler) {
    const KnownRegions p = known_regions(dialect, sampler);
    return std::vector<bool>{p.input, p.output, p.end, p.clean_input};
  };
  EXPECT_EQ(parts("ebb", "euler"), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(parts("comfy", "ddim"), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(parts("a1111", "euler_a"), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(parts("a1111", "ddim"), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(parts("diffusers", "euler"), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(parts("sdcpp", "euler"), (std::vector<bool>{false, true, false, false}));
  expect_error([] { known_regions("comfi", "euler"); }, "did you mean 'comfy'?");
}

TEST(inpainting, wrong_sizes__are_named) {
  expect_error([] { evaluate({.data = {1, 2, 3}, .mask = {1, 0}}, 1); }, "a value for each of 3");
  expect_error([] { evaluate({.data = {1, 2}, .mask = {1, 0}}, 1); }, "the state has 3 values");
  std::vector<double> mask = {0.4, 0.5, 1};
  round_mask<double>(mask);
  EXPECT_EQ(mask, (std::vector<double>{0, 1, 1}));
}

}  // namespace
}  // namespace ebb
