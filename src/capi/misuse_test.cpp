// The C API's errors: what callers forget, and calls that come at the wrong time.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "diffusion/solver/sampler.h"
#include "support/c_api.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_ok;
using testing::Handle;

constexpr size_t size = 4;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

int toy(void*, const float* x, double sigma, float* denoised, float* uncond) {
  for (size_t i = 0; i < size; ++i) {
    denoised[i] = static_cast<float>(testing::Mixture{}.denoise(static_cast<double>(x[i]), sigma));
    if (uncond != nullptr) uncond[i] = denoised[i];
  }
  return 0;
}

void set_levels(const Handle& h, const std::vector<double>& sigmas) {
  expect_ok(ebb_sampler_set_sigmas(h.s, sigmas.data(), sigmas.size()));
}

// ---- callbacks that forget to write --------------------------------------------------------

int forgets_all(void*, const float*, double, float*, float*) { return 0; }
int forgets_last(void*, const float* x, double, float* denoised, float*) {
  std::copy_n(x, size - 1, denoised);
  return 0;
}
int forgets_uncond(void*, const float* x, double sigma, float* denoised, float*) {
  return toy(nullptr, x, sigma, denoised, nullptr);
}

TEST(c_api, a_denoiser_that_does_not_write__is_an_error_that_names_the_array) {
  float x[size] = {1, 2, 3, 4};
  Handle h("heun"), pp("euler_cfg_pp");
  for (const Handle* s : {&h, &pp}) set_levels(*s, {4, 2, 1, 0});
  const auto run = [&](const Handle& s, ebb_denoise d) {
    return ebb_sampler_run(s.s, x, 1, size, d, nullptr);
  };
  expect_error(run(h, forgets_all), "the denoiser did not write denoised[0] of 4 at noise level 4");
  expect_error(run(h, forgets_last), "did not write denoised[3] of 4 at noise level 4");
  expect_error(run(pp, forgets_all), "did not write denoised[0]");
  expect_error(run(pp, forgets_uncond),
               "the denoiser did not write uncond[0] of 4 at noise level 4");
  expect_error(run(pp, forgets_uncond), "guidance other than 1, or a rule");
  EXPECT_EQ(x[3], 4);
  expect_ok(run(h, forgets_uncond));  // not requested
  expect_ok(run(pp, toy));
}

TEST(c_api, a_denoiser_that_does_not_write__is_seen_behind_inpainting) {
  float x[size] = {1, 2, 3, 4};
  Handle h("euler");
  set_levels(h, {4, 2, 1, 0});
  const float data[size] = {}, mask[size] = {0, 0.5F, 1, 0};
  const ebb_inpaint how{.count = size, .data = data, .mask = mask, .output = 1};
  expect_ok(ebb_sampler_set_inpaint(h.s, &how));
  expect_error(ebb_sampler_run(h.s, x, 1, size, forgets_all, nullptr), "did not write denoised[1]");
}

TEST(c_api, noise_that_is_not_written__is_an_error) {
  float x[size] = {1, 2, 3, 4};
  Handle h("euler_ancestral");
  set_levels(h, {4, 2, 1, 0});
  const auto forgets = [](void*, int64_t index, double, double, float* out, size_t n) {
    if (index < 1) std::fill_n(out, n, 0.5F);
    return 0;
  };
  expect_ok(ebb_sampler_set_noise(h.s, forgets, nullptr));
  expect_error(ebb_sampler_run(h.s, x, 1, size, toy, nullptr),
               "the source of noise did not write number 0 of 4 of draw 1");
}

// ---- levels --------------------------------------------------------------------------------

TEST(c_api, levels__are_refused_where_they_are_set) {
  Handle h("euler");
  const auto set = [&](const std::vector<double>& s) {
    return ebb_sampler_set_sigmas(h.s, s.data(), s.size());
  };
  const double inf = std::numeric_limits<double>::infinity();
  expect_error(set({1, 2}), "noise levels must fall (sigmas[1] is 2, after 1)");
  expect_error(set({4, 2, 1, 3, 0}), "noise levels must fall (sigmas[3] is 3, after 1)");
  expect_error(set({4, nan, 0}), "noise levels must be finite and not negative (sigmas[1] is nan)");
  expect_error(set({inf, 1}), "must be finite and not negative (sigmas[0] is inf)");
  expect_error(set({1, -0.5}), "must be finite and not negative (sigmas[1] is -0.5)");
  const double none = 0;
  expect_error(ebb_sampler_set_sigmas(h.s, &none, 0), "needs a noise level");
  expect_error(ebb_sampler_set_sigmas(h.s, nullptr, 2), "must not be NULL");
  float x[size] = {};
  expect_error(ebb_sampler_start(h.s, nullptr, 1, size, x), "needs noise levels");
  expect_ok(set({4, 4, 1}));
  expect_error(set({1, 2}), "must fall");
  EXPECT_EQ(testing::levels_of(h), (std::vector<double>{4, 4, 1}));
}

TEST(c_api, levels_of_flow_models__end_at_1_in_every_call) {
  Handle h("euler");
  set_levels(h, {14, 2, 0});
  expect_ok(ebb_sampler_configure(h.s, "space", "flow"));
  float x[size] = {};
  size_t count = 0;
  const char* text = "noise levels of a flow model end at 1 (sigmas[0] is 14)";
  expect_error(ebb_sampler_start(h.s, nullptr, 1, size, x), text);
  expect_error(ebb_sampler_sigmas(h.s, nullptr, 0, &count), text);
  expect_error(ebb_sampler_count(h.s, nullptr, nullptr), text);
  expect_error(ebb_sampler_run(h.s, x, 1, size, toy, nullptr), text);
}

TEST(c_api, spaces_that_contradict__are_refused_by_every_call) {
  for (const bool levels_first : {false, true}) {
    Handle h("euler");
    if (levels_first) expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
    expect_ok(ebb_sampler_configure(h.s, "space", "ve"));
    if (!levels_first) expect_ok(ebb_sampler_set_levels(h.s, "levels", "flow"));
    set_levels(h, {1, 0.5, 0});
    const std::string text = "levels flow are of space flow, not ve";
    float x[size] = {};
    size_t count = 0;
    int64_t step = 0;
    ebb_guidance* g = nullptr;
    expect_error(ebb_sampler_start(h.s, nullptr, 1, size, x), text);
    expect_error(ebb_sampler_sigmas(h.s, nullptr, 0, &count), text);
    expect_error(ebb_sampler_count(h.s, nullptr, nullptr), text);
    expect_error(ebb_sampler_run(h.s, x, 1, size, toy, nullptr), text);
    expect_error(ebb_sampler_finish(h.s, 0.5, size, x), text);
    expect_error(ebb_sampler_refiner_step(h.s, "steps", 0.5, &step), text);
    expect_error(ebb_network_input(h.s, 0.5, nullptr, nullptr), text);
    expect_error(ebb_network_denoised(h.s, 0.5, x, x, size, x), text);
    expect_error(ebb_guidance_create("cfg", h.s, 1, size, &g), text);
  }
}

TEST(c_api, noise_levels_beyond_a_flow__are_refused_by_every_call) {
  Handle h("euler");
  expect_ok(ebb_sampler_configure(h.s, "space", "flow"));
  float x[size] = {1, 1, 1, 1};
  for (const double wrong : {1.5, -0.5, nan}) {
    expect_error(ebb_sampler_finish(h.s, wrong, size, x),
                 "sigma of a flow model must lie in [0, 1]");
    expect_error(ebb_network_input(h.s, wrong, nullptr, nullptr), "must lie in [0, 1]");
    expect_error(ebb_network_denoised(h.s, wrong, x, x, size, x), "must lie in [0, 1]");
  }
  EXPECT_EQ(x[0], 1);
  expect_ok(ebb_sampler_finish(h.s, 1, size, x));
  expect_ok(ebb_sampler_finish(h.s, 0.5, size, x));
  EXPECT_EQ(x[0], 2);

  Handle ve("euler");
  ebb_guidance* g = nullptr;
  expect_ok(ebb_guidance_create("cfg", ve.s, 1, size, &g));
  size_t count = 0;
  const float* both[] = {x, x};
  for (const double wrong : {nan, -1.0}) {
    expect_error(ebb_guidance_branches(g, wrong, nullptr, 0, &count),
                 "sigma must be finite and not");
    expect_error(ebb_guidance_apply(g, wrong, x, both, x), "sigma must be finite and not negative");
  }
  ebb_guidance_destroy(g);
}

// ---- runs that do nothing ------------------------------------------------------------------

TEST(c_api, runs_of_no_step__give_the_state_back) {
  float x[size] = {1, 2, 3, 4};
  int64_t evaluations = -1;
  Handle h("euler");
  set_levels(h, {3});
  expect_ok(ebb_sampler_run(h.s, x, 1, size, forgets_all, nullptr));
  EXPECT_EQ(x[3], 4);
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
  expect_ok(ebb_sampler_set_schedule_option(h.s, "strength", "0"));
  expect_ok(ebb_sampler_count(h.s, &evaluations, nullptr));
  EXPECT_EQ(evaluations, 0);
  expect_ok(ebb_sampler_run(h.s, x, 1, size, forgets_all, nullptr));
  EXPECT_EQ(x[3], 4);
  // What a refiner is left of 8 steps where it has none.
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
  expect_ok(ebb_sampler_set_schedule_option(h.s, "start_at_step", "8"));
  expect_ok(ebb_sampler_run(h.s, x, 1, size, forgets_all, nullptr));
}

TEST(c_api, stretches_that_hold_no_step__are_errors) {
  const auto error = [](const char* start, const char* end, const char* text) {
    Handle h("euler");
    expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "start_at_step", start));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "end_at_step", end));
    expect_error(ebb_sampler_count(h.s, nullptr, nullptr), text);
  };
  error("9", "-1", "schedule: start_at_step (9) lies behind all steps (8)");
  error("5", "4", "schedule: start_at_step (5) must not lie behind end_at_step (4)");
}

// ---- calls at the wrong time ---------------------------------------------------------------

struct Nested {
  ebb_sampler* s;
  int call = 0;
  std::string errors = {};
  int statuses[8] = {};
};

int calls_back(void* user, const float* x, double sigma, float* denoised, float* uncond) {
  auto& n = *static_cast<Nested*>(user);
  float y[size] = {1, 1, 1, 1};
  const double one[] = {1, 0};
  const ebb_status all[] = {ebb_sampler_run(n.s, y, 1, size, toy, nullptr),
                            ebb_sampler_set_sigmas(n.s, one, 2),
                            ebb_sampler_set(n.s, "s_churn", "1"),
                            ebb_sampler_configure(n.s, "dialect", "comfy"),
                            ebb_sampler_set_progress(n.s, nullptr, nullptr),
                            ebb_sampler_set_noise(n.s, nullptr, nullptr),
                            ebb_sampler_set_inpaint(n.s, nullptr)};
  for (const ebb_status s : all) n.statuses[n.call++] = s;
  n.errors = ebb_last_error();
  n.call = 0;
  double scale = 0;
  expect_ok(ebb_network_input(n.s, sigma, &scale, nullptr));  // a query
  ebb_sampler_destroy(n.s);
  EXPECT_NE(std::string(ebb_last_error()).find("while it runs"), std::string::npos);
  return toy(nullptr, x, sigma, denoised, uncond);
}

TEST(c_api, calls_that_change_a_sampler_in_its_own_callback__are_errors) {
  float x[size] = {1, 2, 3, 4}, y[size] = {1, 2, 3, 4};
  Handle h("euler");
  set_levels(h, {4, 2, 1, 0});
  expect_ok(ebb_sampler_run(h.s, x, 1, size, toy, nullptr));
  Nested n{.s = h.s};
  expect_ok(ebb_sampler_run(h.s, y, 1, size, calls_back, &n));
  for (int i = 0; i < 7; ++i) EXPECT_EQ(n.statuses[i], EBB_ERROR) << i;
  EXPECT_EQ(n.errors, "sampler: cannot be changed or run again while it runs");
  for (size_t i = 0; i < size; ++i) EXPECT_EQ(x[i], y[i]);
  EXPECT_STREQ(ebb_last_error(), "");  // the run's, which went well
  // Also after a run that failed.
  expect_error(ebb_sampler_run(h.s, x, 1, size, forgets_all, nullptr), "did not write");
  expect_ok(ebb_sampler_run(h.s, x, 1, size, toy, nullptr));
}

TEST(c_api, last_error__is_empty_after_calls_that_went_well) {
  Handle h("euler");
  const auto fails = [&] { expect_error(ebb_sampler_set(h.s, "no", "1"), "'no'"); };
  fails();
  ebb_sampler_destroy(nullptr);
  EXPECT_STREQ(ebb_last_error(), "");
  fails();
  ebb_guidance_destroy(nullptr);
  EXPECT_STREQ(ebb_last_error(), "");
  fails();
  EXPECT_NE(ebb_sampler_name(0), nullptr);
  EXPECT_STREQ(ebb_last_error(), "");
}

// ---- names and sizes -----------------------------------------------------------------------

TEST(c_api, names_of_the_other_kind__are_distinguished_from_unknown_ones) {
  Handle h("euler");
  expect_error(ebb_sampler_configure(h.s, "noise", "diffusers"),
               "noise: 'diffusers' is a dialect, whose source is torch_cpu");
  expect_error(ebb_sampler_configure(h.s, "dialect", "torch_cpu"),
               "dialect: 'torch_cpu' is a source of noise");
  expect_error(ebb_sampler_set_noise_option(h.s, "colour", "1"), "noise: unknown field 'colour'");
  const std::string text = ebb_last_error();
  EXPECT_EQ(text.find("per_image"), text.rfind("per_image")) << text;
}

TEST(c_api, shapes_that_no_buffer_holds__are_refused) {
  Handle h("euler");
  const size_t big = size_t{1} << 33;
  expect_error(ebb_sampler_set_shape(h.s, big, big, 4), "no buffer holds an image of 8589934592 x");
  expect_error(ebb_sampler_set_shape(h.s, ~size_t{0}, 1, 1), "no buffer holds an image");
  expect_error(ebb_sampler_set_shape(h.s, 2, 0, 1), "sizes must be positive");
  expect_ok(ebb_sampler_set_shape(h.s, 2, 2, 1));
}

}  // namespace
}  // namespace ebb
