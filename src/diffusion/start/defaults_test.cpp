// What a run takes where nothing is said: schedules, options and noise by dialect and sampler.
#include "diffusion/solver/defaults.h"

#include <gtest/gtest.h>

#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/start/levels_of_run.h"
#include "support/files.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;

// ---- the table -----------------------------------------------------------------------------

TEST(defaults, every_name__is_known) {
  for (const Dialect& d : all_dialects()) {
    SCOPED_TRACE(d.name);
    const DialectDefaults& h = d.defaults;
    for (const ScheduleForm& f : h.forms) {
      const FoundSchedule found = find_schedule(f.name, d);
      EXPECT_EQ(found.schedule->name, f.schedule.empty() ? f.name : f.schedule);
    }
    for (const SamplerSchedule& s : h.schedules) {
      EXPECT_NO_THROW(find_sampler(s.sampler)) << s.sampler;
      EXPECT_NO_THROW(find_schedule(s.schedule, d)) << s.schedule;
    }
    for (const std::string& s : {h.schedule, h.flow_schedule}) {
      if (s.empty()) continue;
      EXPECT_NO_THROW(find_schedule(s, d)) << s;
    }
    for (const SamplerDefaults& s : h.defaults)
      EXPECT_NO_THROW(check_options(s.sampler, s.options)) << s.sampler;
    for (const std::string& s : h.brownian) EXPECT_NO_THROW(find_sampler(s)) << s;
    const NoiseCall call{.shape = {2, 2, 1}, .sigmas = {2, 1}};
    EXPECT_NO_THROW(open_noise("brownian", call, h.brownian_options));
  }
}

// ---- schedules -----------------------------------------------------------------------------

TEST(usual_schedule, by_dialect_and_sampler__is_the_programs) {
  const auto usual = [](std::string_view dialect, std::string_view sampler) {
    return usual_schedule(dialect, sampler, Space::ve);
  };
  EXPECT_EQ(usual("a1111", "dpmpp_2m"), "karras");
  EXPECT_EQ(usual("a1111", "DPM++ 2M SDE Heun"), "exponential");
  EXPECT_EQ(usual("a1111", "DPM++ 2M SDE Heun Karras"), "karras");
  EXPECT_EQ(usual("a1111", "DPM2 a"), "karras");
  EXPECT_EQ(usual("a1111", "Euler a"), "uniform");
  EXPECT_EQ(usual("sdcpp", "tcd"), "lcm");
  EXPECT_EQ(usual("sdcpp", "ddim_trailing"), "simple");
  EXPECT_EQ(usual("sdcpp", "euler_a"), "discrete");
  EXPECT_EQ(usual("ebb", "euler"), "");
  EXPECT_EQ(usual("ebb", "unipc_tq"), "time_quadratic");
  EXPECT_EQ(usual_schedule("diffusers", "euler", Space::flow), "flow");
}

TEST(usual_schedule, auto__is_it) {
  const Discretisation sd1 = discretisation({});
  const LevelsOfRun run{.sampler = "DPM++ 2M", .schedule = "auto", .steps = 6, .dialect = "a1111"};
  EXPECT_EQ(levels_of_run(run, sd1), noise_levels("karras", sd1, {.steps = 6}));
  EXPECT_EQ(schedule_of_run({.sampler = "euler", .schedule = "auto"}, sd1), "normal");
}

TEST(usual_schedule, of_flow_models__supports_them_in_every_dialect) {
  const Discretisation flow = discretisation({.levels = "flow", .shift = 3});
  for (const Dialect& d : all_dialects())
    for (const Sampler* s : all_samplers()) {
      if (!s->flow) continue;
      const LevelsOfRun run{.sampler = s->name, .schedule = "auto", .steps = 4, .dialect = d.name};
      EXPECT_NO_THROW(levels_of_run(run, flow)) << d.name << ' ' << s->name;
    }
}

TEST(usual_schedule, of_no_dialect__is_the_networks) {
  const LevelsOfRun run{.sampler = "euler", .schedule = "auto", .usual = "exponential"};
  EXPECT_EQ(schedule_of_run(run, discretisation({})), "exponential");
}

TEST(spaced_leading, however_it_is_said__is_known) {
  const Discretisation sd = discretisation({});
  const auto leading = [&](const std::string& schedule, const OptionTexts& options = {},
                           const std::string& dialect = "diffusers") {
    return spaced_leading(
        {.sampler = "euler", .schedule = schedule, .options = options, .dialect = dialect}, sd);
  };
  EXPECT_TRUE(leading("leading"));
  EXPECT_TRUE(leading("Leading"));
  EXPECT_TRUE(leading("auto"));
  EXPECT_TRUE(leading("diffusers_timesteps"));
  EXPECT_FALSE(leading("leading", {{"spacing", "trailing"}}));
  EXPECT_FALSE(leading("trailing"));
  EXPECT_FALSE(leading("karras"));
}

TEST(strength, of_nothing__leaves_one_level_whatever_the_schedule) {
  for (const char* schedule : {"karras", "align_your_steps", "turbo"})
    for (const char* dialect : {"ebb", "comfy"}) {
      const LevelsOfRun run{
          .sampler = "euler", .schedule = schedule, .steps = 5, .dialect = dialect, .strength = 0};
      EXPECT_EQ(levels_of_run(run, discretisation({})).size(), 1U) << schedule << dialect;
    }
}

TEST(find_sampler, names_of_the_web_ui__are_found) {
  for (const char* name : {"DPM++ 2M",   "DPM++ SDE",    "DPM++ 2M SDE", "DPM++ 2M SDE Heun",
                           "DPM++ 2S a", "DPM++ 3M SDE", "Euler a",      "Euler",
                           "LMS",        "Heun",         "DPM2",         "DPM2 a",
                           "DPM fast",   "DPM adaptive", "Restart",      "DDIM",
                           "DDIM CFG++", "PLMS",         "UniPC",        "LCM"}) {
    const FoundSampler plain = find_sampler(name);
    for (const char* schedule : {"Karras", "Exponential", "Polyexponential", "SGM Uniform"}) {
      const FoundSampler found = find_sampler(str(name, ' ', schedule));
      EXPECT_EQ(found.sampler, plain.sampler) << name;
      EXPECT_EQ(found.options, plain.options) << name;
    }
  }
  expect_error([] { find_sampler("Karras"); }, "unknown name 'Karras'");
}

TEST(schedules, names_that_programs_share__are_what_each_means) {
  const Discretisation sd1 = discretisation({});
  const auto six = [&](std::string_view name, const std::string& dialect) {
    return noise_levels(name, sd1, {.steps = 6, .dialect = dialect});
  };
  EXPECT_EQ(six("beta", "a1111"), six("beta_continuous", "ebb"));
  EXPECT_EQ(six("beta", "comfy"), six("beta", "ebb"));
  EXPECT_EQ(six("KL Optimal", "a1111"), six("kl_optimal_open", "ebb"));
  EXPECT_EQ(six("turbo", "diffusers"), six("trailing", "ebb"));
  EXPECT_NEAR(six("Align Your Steps", "a1111").front(), 14.615, 1e-12);
  expect_error([&] { six("kl_optimum", "a1111"); }, "did you mean 'kl_optimal'");
}

// A list's own rule for a part of the way is ComfyUI's.
TEST(schedules, a_part_of_the_way__follows_the_dialect) {
  const Discretisation sd1 = discretisation({});
  const auto part = [&](const std::string& dialect) {
    return levels_of_run(
        {.sampler = "euler", .schedule = "ays", .steps = 10, .dialect = dialect, .strength = 0.5},
        sd1);
  };
  EXPECT_EQ(part("comfy").size(), 6U);
  const auto all = noise_levels("ays", sd1, {.steps = 10, .dialect = "a1111"});
  EXPECT_EQ(part("a1111"), std::vector<double>(all.end() - 7, all.end()));
}

// ---- options -------------------------------------------------------------------------------

TEST(default_options, of_a_dialect__come_before_those_of_the_name_and_the_caller) {
  const auto end = [](std::string_view sampler, const std::string& dialect, const OptionTexts& o) {
    SampleCall call{.sigmas = {10, 5, 2, 1, 0.5}, .options = o, .dialect = dialect};
    return testing::run_toy(sampler, {7, -3}, call).x;
  };
  const OptionTexts second = {{"order", "2"}, {"variant", "bh2"}};
  EXPECT_EQ(end("uni_pc", "diffusers", {}), end("uni_pc", "ebb", second));
  EXPECT_EQ(end("uni_pc", "diffusers", {{"order", "3"}, {"variant", "bh1"}}),
            end("uni_pc", "ebb", {}));
  EXPECT_EQ(default_options("sdcpp", "tcd"), (OptionTexts{{"eta", "0"}}));
  EXPECT_TRUE(default_options("sdcpp", "lcm").empty());
}

TEST(default_options, of_flow_models__run_in_every_dialect) {
  for (const Dialect& d : all_dialects())
    for (const Sampler* s : all_samplers()) {
      if (!s->flow) continue;
      SampleCall call{.sigmas = {1, 0.7, 0.4, 0}, .dialect = d.name};
      call.space = Space::flow, call.first_sigma = 0.9999;
      EXPECT_NO_THROW(count(s->name, call)) << d.name << ' ' << s->name;
    }
}

// ---- noise ---------------------------------------------------------------------------------

TEST(default_noise, of_brownian_samplers__is_a_path_where_the_program_has_one) {
  for (const char* sampler : {"dpmpp_sde", "dpmpp_2m_sde_heun", "DPM++ 3M SDE Exponential"}) {
    for (const char* dialect : {"kdiff", "comfy", "a1111"})
      EXPECT_EQ(default_noise(dialect, sampler).steps, "brownian") << sampler << ' ' << dialect;
    for (const char* dialect : {"ebb", "diffusers", "sdcpp"})
      EXPECT_EQ(default_noise(dialect, sampler).steps, "") << sampler << ' ' << dialect;
  }
  for (const Dialect& d : all_dialects()) {
    EXPECT_EQ(default_noise(d.name, "euler_ancestral").steps, "");
    EXPECT_EQ(default_noise(d.name, "dpmpp_2m_sde_bt").steps, "brownian");
    EXPECT_EQ(default_noise(d.name, "dpmpp_2m_sde_gpu").steps, "brownian");
    EXPECT_EQ(default_noise(d.name, "dpmpp_sde").source, d.noise);
  }
  EXPECT_EQ(default_noise("diffusers", "DPMSolverSDEScheduler").steps, "brownian");
}

TEST(default_noise, opened__starts_by_one_source_and_steps_by_the_other) {
  const NoiseCall call{.seed = 3, .shape = {4, 4, 2}, .sigmas = {10, 5, 1}};
  const NoiseDraw draw{.from = 10, .to = 5};
  const auto numbers = [&](const Noise& noise) {
    std::vector<double> start(32), step(32);
    noise.start(start);
    noise.step(step, draw);
    return std::pair{start, step};
  };
  const auto [start, step] = numbers(open_default_noise(default_noise("comfy", "dpmpp_sde"), call));
  EXPECT_EQ(start, numbers(open_noise("comfy", call)).first);
  EXPECT_EQ(step, numbers(open_noise("brownian", call)).second);
  const auto gpu = numbers(open_default_noise(default_noise("comfy", "dpmpp_sde_gpu"), call));
  EXPECT_EQ(gpu.first, start);
  EXPECT_EQ(gpu.second,
            numbers(open_noise("brownian", call, {{"generator", "torch_cuda"}})).second);
  // Options of both sources count for both.
  const auto nv =
      numbers(open_default_noise(default_noise("a1111", "dpmpp_sde"), call, {{"generator", "nv"}}));
  EXPECT_EQ(nv.first, numbers(open_noise("a1111", call, {{"generator", "nv"}})).first);
  EXPECT_EQ(
      nv.second,
      numbers(open_noise("brownian", call, {{"generator", "nv"}, {"per_image", "true"}})).second);
}

}  // namespace
}  // namespace ebb
