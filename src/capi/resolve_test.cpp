// What follows from the C API's settings, in whichever order they came.
#include <cmath>
#include <string>

#include "diffusion/levels/schedule.h"
#include "support/c_api.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_ok;
using testing::Handle;
using testing::levels_of;

// ---- order ---------------------------------------------------------------------------------

struct Pair {
  const char *sampler, *first, *first_value, *second, *second_value;
};

TEST(c_api, options__that_need_each_other_come_in_any_order) {
  const Pair pairs[] = {{"er_sde", "eta", "0.5", "solver_type", "reverse_sde"},
                        {"restart", "restart_from", "3", "restart_to", "5"},
                        {"seeds_3", "r_1", "0.7", "r_2", "0.9"},
                        {"deis", "max_order", "4", "deis_mode", "rhoab"}};
  for (const Pair& p : pairs) {
    Handle a(p.sampler), b(p.sampler);
    const std::vector<double> sigmas = testing::karras(20, 0.03, 14);  // restart goes back
    for (const Handle* h : {&a, &b})
      expect_ok(ebb_sampler_set_sigmas(h->s, sigmas.data(), sigmas.size()));
    expect_ok(ebb_sampler_set(a.s, p.first, p.first_value));
    expect_ok(ebb_sampler_set(a.s, p.second, p.second_value));
    expect_ok(ebb_sampler_set(b.s, p.second, p.second_value));
    expect_ok(ebb_sampler_set(b.s, p.first, p.first_value));
    for (const Handle* h : {&a, &b}) expect_ok(ebb_sampler_count(h->s, nullptr, nullptr));
  }
}

TEST(c_api, combinations__are_refused_on_use) {
  Handle h("euler");
  size_t count = 0;
  expect_ok(ebb_sampler_set_levels(h.s, "prediction", "flow"));
  expect_error(ebb_sampler_sigmas(h.s, nullptr, 0, &count), "does not go with levels scaled");
  expect_error(ebb_sampler_count(h.s, nullptr, nullptr), "does not go with levels scaled");
  expect_error(ebb_network_input(h.s, 0.5, nullptr, nullptr), "does not go with levels scaled");
  expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
  expect_ok(ebb_sampler_sigmas(h.s, nullptr, 0, &count));
  expect_ok(ebb_sampler_configure(h.s, "space", "ve"));
  expect_error(ebb_sampler_sigmas(h.s, nullptr, 0, &count), "are of space flow, not ve");

  Handle turbo("euler");
  expect_ok(ebb_sampler_set_schedule(turbo.s, "turbo", 20));
  expect_error(ebb_sampler_sigmas(turbo.s, nullptr, 0, &count), "turbo has 10 steps");
  expect_ok(ebb_sampler_set_schedule_option(turbo.s, "spread", "true"));
  EXPECT_EQ(levels_of(turbo).size(), 21U);
}

TEST(c_api, a_setting_that_fails__leaves_no_trace) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 5));
  const std::vector<double> before = levels_of(h);
  expect_error(ebb_sampler_set_schedule(h.s, "karras", 0), "steps");
  expect_error(ebb_sampler_set_schedule(h.s, "karras", 2000000000), "steps must be at most");
  expect_error(ebb_sampler_set_schedule_option(h.s, "rho", "seven"), "rho");
  expect_error(ebb_sampler_set_levels(h.s, "timesteps", "0"), "timesteps must lie in");
  expect_error(ebb_sampler_set(h.s, "s_churn", "much"), "s_churn");
  expect_error(ebb_sampler_set_noise_option(h.s, "subseed_strenth", "1"), "'subseed_strength'");
  EXPECT_EQ(levels_of(h), before);
  // An option of a source that the dialect brings.
  expect_ok(ebb_sampler_set_noise_option(h.s, "ensd", "31337"));
  expect_error(ebb_sampler_count(h.s, nullptr, nullptr), "ensd");
  expect_ok(ebb_sampler_configure(h.s, "dialect", "a1111"));
  expect_ok(ebb_sampler_count(h.s, nullptr, nullptr));
}

// When it is set or, where the usual value is infinite, when the run is looked at.
bool is_refused(ebb_sampler* s, const std::string& name, const char* value) {
  return ebb_sampler_set(s, name.c_str(), value) == EBB_ERROR ||
         ebb_sampler_count(s, nullptr, nullptr) == EBB_ERROR;
}

TEST(c_api, options_that_are_no_numbers__are_refused_by_every_sampler) {
  const double sigmas[] = {14, 6, 4, 2, 1, 0.5, 0};
  for (const Sampler* sampler : all_samplers())
    for (const Option& o : sampler->options()) {
      const bool number = std::holds_alternative<double>(o.typed);
      const bool level = o.name.ends_with("_to") || o.name == "s_tmin";
      if (!number && !std::holds_alternative<std::string>(o.typed)) continue;
      Handle h(sampler->name.c_str());
      expect_ok(ebb_sampler_set_sigmas(h.s, sigmas, 7));
      EXPECT_TRUE(is_refused(h.s, o.name, "nan")) << sampler->name << o.name;
      if (!level) continue;
      EXPECT_TRUE(is_refused(h.s, o.name, "inf")) << sampler->name << o.name;
    }
}

// ---- levels --------------------------------------------------------------------------------

TEST(c_api, flow_levels__need_two_timesteps) {
  for (const char* few : {"1", "0", "-5"}) {
    Handle h("euler");
    expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
    expect_error(ebb_sampler_set_levels(h.s, "timesteps", few), "timesteps must lie in [2");
    expect_ok(ebb_sampler_set_schedule(h.s, "simple", 4));
    EXPECT_EQ(levels_of(h).size(), 5U);
  }
}

TEST(c_api, dataward_networks__get_one_minus_sigma_as_timestep) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_levels(h.s, "prediction", "dataward"));
  expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
  double timestep = 0;
  expect_ok(ebb_network_input(h.s, 0.25, nullptr, &timestep));
  EXPECT_EQ(timestep, 750);
}

TEST(c_api, a_range_of_steps__is_that_of_the_full_list) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 10));
  const std::vector<double> all = levels_of(h);
  expect_ok(ebb_sampler_set_schedule_option(h.s, "start_at_step", "2"));
  expect_ok(ebb_sampler_set_schedule_option(h.s, "end_at_step", "6"));
  EXPECT_EQ(levels_of(h), std::vector<double>(all.begin() + 2, all.begin() + 7));
  expect_ok(ebb_sampler_set_schedule_option(h.s, "finish", "true"));
  std::vector<double> finished(all.begin() + 2, all.begin() + 7);
  finished.back() = 0;
  EXPECT_EQ(levels_of(h), finished);
  expect_error(ebb_sampler_set_schedule_option(h.s, "start_at_step", "-1"), "start_at_step");
}

TEST(c_api, schedules__are_those_of_the_dialect_whenever_it_is_chosen) {
  Handle a("euler"), b("euler");
  expect_ok(ebb_sampler_configure(a.s, "dialect", "a1111"));
  for (const Handle* h : {&a, &b}) {
    expect_ok(ebb_sampler_set_schedule(h->s, "beta", 8));
    expect_ok(ebb_sampler_set_schedule_option(h->s, "alpha", "0.7"));
  }
  const std::vector<double> ours = levels_of(b);
  expect_ok(ebb_sampler_configure(b.s, "dialect", "a1111"));
  EXPECT_EQ(levels_of(a), levels_of(b));
  EXPECT_NE(levels_of(b), ours);
  expect_ok(ebb_sampler_set_schedule(b.s, "turbo", 20));
  EXPECT_EQ(levels_of(b).size(), 21U);  // any number of steps there
}

TEST(c_api, exact_steps__are_refused_where_no_rule_has_them) {
  for (const char* dialect : {"ebb", "comfy", "diffusers", "sdcpp", "a1111", "kdiff"}) {
    Handle h("euler");
    expect_ok(ebb_sampler_configure(h.s, "dialect", dialect));
    expect_ok(ebb_sampler_set_schedule(h.s, "karras", 10));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "strength", "0.5"));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "exact_steps", "true"));
    if (std::string(dialect) == "a1111" || std::string(dialect) == "kdiff")
      EXPECT_EQ(levels_of(h).size(), 11U) << dialect;
    else
      expect_error(ebb_sampler_count(h.s, nullptr, nullptr), "has no exact_steps");
  }
}

// ---- a run of another program --------------------------------------------------------------

int flow_toy(void*, const float* x, double sigma, float* denoised, float*) {
  const auto denoise = testing::on_flow(testing::mixture_denoiser());
  for (int i = 0; i < 4; ++i)
    denoised[i] = static_cast<float>(denoise(static_cast<double>(x[i]), sigma));
  return 0;
}

int sine(void*, int64_t index, double from, double to, float* out, size_t count) {
  std::vector<double> z(count);
  testing::sine_noise()(z, {index, from, to});
  std::copy(z.begin(), z.end(), out);
  return 0;
}

TEST(c_api, first_level_of_flow__stands_for_a_ten_thousandth_of_the_shifted_time) {
  Handle h("seeds_3");
  expect_ok(ebb_sampler_configure(h.s, "dialect", "comfy"));
  expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
  expect_ok(ebb_sampler_set_levels(h.s, "shift", "3"));
  const double sigmas[] = {1, 0.937781109445, 0.857326478149, 0.75, 0.60071942446, 0.375562218891,
                           0};
  expect_ok(ebb_sampler_set_sigmas(h.s, sigmas, 7));
  expect_ok(ebb_sampler_set_noise(h.s, sine, nullptr));
  // ComfyUI's case seeds_3 on the list flow6.
  float x[4] = {-0.41F, 0.21F, 0.03F, -0.12F};
  expect_ok(ebb_sampler_run(h.s, x, 1, 4, flow_toy, nullptr));
  const double want[] = {-1.288872915844, -1.2888705987115, -1.2888712714302, -1.2888718320274};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(static_cast<double>(x[i]), want[i], 1e-5);
}

int ve_toy(void*, const float* x, double sigma, float* denoised, float*) {
  for (int i = 0; i < 4; ++i)
    denoised[i] = static_cast<float>(testing::Mixture{}.denoise(static_cast<double>(x[i]), sigma));
  return 0;
}

TEST(c_api, brownian_paths__support_empty_substeps) {
  for (const char* name : {"exp_heun_2_x0_sde", "seeds_2", "dpmpp_sde", "dpmpp_2m_sde"}) {
    Handle h(name);
    expect_ok(ebb_sampler_configure(h.s, "dialect", "comfy"));
    expect_ok(ebb_sampler_configure(h.s, "noise", "brownian"));
    const double sigmas[] = {5, 1, 1 - 1e-8, 0.3, 0};
    expect_ok(ebb_sampler_set_sigmas(h.s, sigmas, 5));
    float x[4] = {1, 2, -3, 4};
    expect_ok(ebb_sampler_run(h.s, x, 1, 4, ve_toy, nullptr));
    for (const float v : x) EXPECT_TRUE(std::abs(v) < 10) << name << " " << v;
  }
}

// ---- seeds, names --------------------------------------------------------------------------

TEST(c_api, seeds__have_64_bits) {
  const double one[] = {1};
  Handle a("euler"), b("euler");
  const uint64_t last = ~uint64_t{0};
  float x[3], y[3];
  for (const Handle* h : {&a, &b}) expect_ok(ebb_sampler_set_sigmas(h->s, one, 1));
  expect_ok(ebb_sampler_configure(a.s, "seed", "18446744073709551615"));
  expect_ok(ebb_sampler_configure(b.s, "noise", "nv"));
  expect_ok(ebb_sampler_configure(a.s, "noise", "nv"));
  expect_ok(ebb_sampler_set_seeds(b.s, &last, 1));
  expect_ok(ebb_sampler_start(a.s, nullptr, 1, 3, x));
  expect_ok(ebb_sampler_start(b.s, nullptr, 1, 3, y));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(x[i], y[i]);
  for (const char* wrong : {"-1", "18446744073709551616", "1.5", "", "1 "})
    expect_error(ebb_sampler_configure(a.s, "seed", wrong), "seed: expected a whole number");
}

TEST(c_api, describe__has_the_defaults_of_the_requested_name) {
  const auto expect_default = [](const char* text, const std::string& name, const OptionTexts& o) {
    ASSERT_NE(text, nullptr) << name;
    for (const auto& [option, value] : o)
      EXPECT_NE(("\n" + std::string(text)).find("\n" + option + "=" + value + " "),
                std::string::npos)
          << name << "\n"
          << text;
  };
  for (const Sampler* s : all_samplers())
    for (const SamplerAlias& a : s->aliases)
      expect_default(ebb_sampler_describe(a.name.c_str()), a.name, a.options);
  expect_default(ebb_schedule_describe("turbo_spread"), "turbo_spread", {{"spread", "true"}});
}

}  // namespace
}  // namespace ebb
