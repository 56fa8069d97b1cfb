// The C API's levels, schedules, noise, network and guidance: the numbers of the C++ functions.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "support/c_api.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_ok;
using testing::Handle;
using testing::levels_of;

// ---- levels --------------------------------------------------------------------------------

TEST(c_api, every_schedule__gives_the_levels_of_the_cpp_one) {
  for (const Schedule* schedule : all_schedules()) {
    const bool flow = schedule->space == Space::flow;
    Handle h("euler");
    expect_ok(ebb_sampler_set_levels(h.s, "levels", flow ? "flow" : "scaled_linear"));
    const Discretisation levels = discretisation({.levels = flow ? "flow" : "scaled_linear"});
    expect_ok(ebb_sampler_set_schedule(h.s, schedule->name.c_str(), 7));
    OptionTexts options;
    if (schedule->name == "custom") options = {{"sigmas", "0.9 0.4,0.1;0"}};
    for (const auto& [name, value] : options)
      expect_ok(ebb_sampler_set_schedule_option(h.s, name.c_str(), value.c_str()));
    const auto want = noise_levels(schedule->name, levels, {.steps = 7, .options = options});
    EXPECT_EQ(levels_of(h), want) << schedule->name;
  }
}

TEST(c_api, settings__come_in_any_order_and_fail_without_a_trace) {
  Handle a("euler"), b("euler");
  expect_ok(ebb_sampler_set_schedule(a.s, "karras", 10));
  expect_ok(ebb_sampler_set_schedule_option(a.s, "rho", "5"));
  expect_ok(ebb_sampler_set_schedule_option(a.s, "strength", "0.5"));
  expect_ok(ebb_sampler_set_levels(a.s, "levels", "edm"));
  expect_ok(ebb_sampler_configure(a.s, "dialect", "comfy"));
  expect_ok(ebb_sampler_configure(b.s, "dialect", "comfy"));
  expect_ok(ebb_sampler_set_levels(b.s, "levels", "edm"));
  expect_ok(ebb_sampler_set_schedule(b.s, "karras", 10));
  expect_ok(ebb_sampler_set_schedule_option(b.s, "strength", "0.5"));
  expect_ok(ebb_sampler_set_schedule_option(b.s, "rho", "5"));
  const std::vector<double> levels = levels_of(a);
  EXPECT_EQ(levels, levels_of(b));
  // ComfyUI: the last ten steps of twenty.
  const auto whole = noise_levels("karras", discretisation({.levels = "edm"}),
                                  {.steps = 20, .options = {{"rho", "5"}}});
  EXPECT_EQ(levels, std::vector<double>(whole.end() - 11, whole.end()));

  expect_error(ebb_sampler_set_schedule(a.s, "karas", 10), "did you mean 'karras'?");
  expect_error(ebb_sampler_set_schedule_option(a.s, "roh", "5"), "rho");
  expect_error(ebb_sampler_set_schedule_option(a.s, "strength", "2"), "[0, 1]");
  expect_error(ebb_sampler_set_levels(a.s, "levels", "edn"), "edm");
  expect_error(ebb_sampler_set_levels(a.s, "prediction", "epsilon"), "unknown prediction");
  EXPECT_EQ(levels_of(a), levels);
  const double own[] = {2, 1};
  expect_ok(ebb_sampler_set_sigmas(a.s, own, 2));
  EXPECT_EQ(levels_of(a), (std::vector<double>{2, 1}));
  expect_error(ebb_sampler_set_schedule_option(a.s, "rho", "5"), "needs a schedule");
}

// ---- the network ---------------------------------------------------------------------------

TEST(c_api, network__input_and_output_follow_its_prediction) {
  Handle h("euler");
  const Discretisation sd = discretisation({});
  double scale = 0, timestep = 0;
  expect_ok(ebb_network_input(h.s, sd.sigmas[500], &scale, &timestep));
  EXPECT_DOUBLE_EQ(scale, 1 / std::hypot(1, sd.sigmas[500]));
  EXPECT_NEAR(timestep, 500, 1e-9);
  const double between = std::sqrt(sd.sigmas[500] * sd.sigmas[501]) * 1.0001;
  expect_ok(ebb_network_input(h.s, between, nullptr, &timestep));
  EXPECT_NEAR(timestep, 500.5, 0.1);
  expect_ok(ebb_sampler_configure(h.s, "dialect", "comfy"));
  expect_ok(ebb_network_input(h.s, between, nullptr, &timestep));
  EXPECT_EQ(timestep, 501);

  const float x = 3, output = 0.5F;
  float d = 0;
  expect_ok(ebb_network_denoised(h.s, 2, &x, &output, 1, &d));
  EXPECT_FLOAT_EQ(d, 2);  // x - sigma eps
  expect_ok(ebb_sampler_set_levels(h.s, "prediction", "v"));
  expect_ok(ebb_network_denoised(h.s, 2, &x, &output, 1, &d));
  EXPECT_FLOAT_EQ(d, static_cast<float>(3.0 / 5 - 0.5 * 2 / std::sqrt(5)));

  Handle flow("euler");
  expect_ok(ebb_sampler_configure(flow.s, "space", "flow"));
  expect_ok(ebb_network_input(flow.s, 0.25, &scale, &timestep));
  EXPECT_EQ(scale, 1);
  EXPECT_EQ(timestep, 250);
  Handle edm("euler");
  expect_ok(ebb_sampler_set_levels(edm.s, "levels", "edm"));
  expect_error(ebb_network_input(edm.s, 0, nullptr, &timestep),
               "has no finite timestep at sigma 0");
}

// ---- noise ---------------------------------------------------------------------------------

constexpr size_t height = 2, width = 3, channels = 4, elements = height * width * channels;

std::vector<float> started(const Handle& h, size_t images = 2) {
  std::vector<float> x(images * elements);
  expect_ok(ebb_sampler_start(h.s, nullptr, images, elements, x.data()));
  return x;
}

TEST(c_api, noise__is_that_of_the_source_the_dialect_and_the_layout) {
  const double one[] = {1};
  for (const Dialect& dialect : all_dialects()) {
    Handle h("euler");
    expect_ok(ebb_sampler_set_sigmas(h.s, one, 1));
    expect_ok(ebb_sampler_configure(h.s, "dialect", dialect.name.c_str()));
    expect_ok(ebb_sampler_configure(h.s, "seed", "5"));
    expect_ok(ebb_sampler_set_shape(h.s, height, width, channels));
    const std::vector<float> hwc = started(h);
    std::vector<double> want(2 * elements);
    open_noise(dialect.noise, {.seed = 5, .images = {0, 1}, .shape = {2, 3, 4}}).start(want);
    EXPECT_EQ(hwc, std::vector<float>(want.begin(), want.end())) << dialect.name;
    expect_ok(ebb_sampler_configure(h.s, "layout", "chw"));
    const std::vector<float> chw = started(h);
    for (size_t i = 0; i < 2 * elements; ++i) {
      const size_t image = i / elements, pixel = i % elements / channels, c = i % channels;
      EXPECT_EQ(chw[image * elements + c * height * width + pixel], hwc[i]) << dialect.name;
    }
  }
}

TEST(c_api, noise__is_chosen_with_its_options_and_seeds) {
  const double one[] = {1};
  Handle h("euler");
  expect_ok(ebb_sampler_set_sigmas(h.s, one, 1));
  expect_ok(ebb_sampler_set_shape(h.s, height, width, channels));
  expect_ok(ebb_sampler_configure(h.s, "noise", "torch_cpu"));
  expect_ok(ebb_sampler_set_noise_option(h.s, "per_image", "true"));
  expect_error(ebb_sampler_set_noise_option(h.s, "per_imag", "true"), "per_image");
  const uint64_t seeds[] = {9, 4};
  expect_ok(ebb_sampler_set_seeds(h.s, seeds, 2));
  const std::vector<float> both = started(h);
  expect_ok(ebb_sampler_set_seeds(h.s, seeds + 1, 1));
  const std::vector<float> second = started(h, 1);
  EXPECT_EQ(std::vector<float>(both.begin() + elements, both.end()), second);
  float x[2 * elements];
  expect_error(ebb_sampler_start(h.s, nullptr, 2, elements, x), "1 seeds for 2 images");
  expect_ok(ebb_sampler_set_seeds(h.s, nullptr, 0));
  expect_error(ebb_sampler_start(h.s, nullptr, 2, 5, x), "its shape 24");
  expect_error(ebb_sampler_start(h.s, nullptr, 0, 5, x), "at least one number");
  expect_error(ebb_sampler_configure(h.s, "noise", "touch_cpu"), "torch_cpu");
  expect_error(ebb_sampler_configure(h.s, "layout", "cwh"), "hwc or chw");
}

TEST(c_api, start__adds_noise_to_a_latent_by_the_space) {
  const double half[] = {0.5, 0};
  const float latent[elements] = {2};
  float noise[elements], x[elements];
  Handle ve("euler"), flow("euler");
  expect_ok(ebb_sampler_set_sigmas(ve.s, half, 2));
  expect_ok(ebb_sampler_start(ve.s, nullptr, 1, elements, noise));
  expect_ok(ebb_sampler_start(ve.s, latent, 1, elements, x));
  EXPECT_FLOAT_EQ(x[0], 2 + noise[0]);
  expect_ok(ebb_sampler_configure(flow.s, "space", "flow"));
  expect_ok(ebb_sampler_set_sigmas(flow.s, half, 2));
  expect_ok(ebb_sampler_start(flow.s, latent, 1, elements, x));
  EXPECT_FLOAT_EQ(x[0], 1 + noise[0]);
}

// ---- guidance ------------------------------------------------------------------------------

struct GuidanceHandle {
  GuidanceHandle(const char* rules, const Handle& h) {
    EXPECT_EQ(ebb_guidance_create(rules, h.s, 2, 3, &g), EBB_OK) << ebb_last_error();
  }
  ~GuidanceHandle() { ebb_guidance_destroy(g); }
  GuidanceHandle(const GuidanceHandle&) = delete;
  GuidanceHandle& operator=(const GuidanceHandle&) = delete;
  ebb_guidance* g = nullptr;
};

TEST(c_api, guidance__combines_its_branches_in_place) {
  Handle h("euler");
  const GuidanceHandle cfg("cfg:scale=3", h), plain("", h), both("cfg:scale=3;cfg_rescale", h);
  const char* names[4] = {};
  size_t count = 0;
  expect_ok(ebb_guidance_branches(cfg.g, 1, names, 4, &count));
  ASSERT_EQ(count, 2U);
  EXPECT_STREQ(names[0], "cond");
  EXPECT_STREQ(names[1], "uncond");
  float x[6] = {}, cond[6] = {1, 2, 3, 4, 5, 7}, uncond[6] = {0, 1, 1, 2, 0, 1};
  const float* predictions[] = {cond, uncond};
  expect_ok(ebb_guidance_apply(cfg.g, 1, x, predictions, cond));
  const float want[6] = {3, 4, 7, 8, 15, 19};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(cond[i], want[i]);
  expect_ok(ebb_guidance_apply(both.g, 1, x, predictions, x));
  EXPECT_TRUE(std::isfinite(x[0]) && x[0] != want[0]);
  expect_ok(ebb_guidance_branches(plain.g, 1, nullptr, 0, &count));
  EXPECT_EQ(count, 1U);
  const float* missing[] = {cond, nullptr};
  expect_error(ebb_guidance_apply(cfg.g, 1, x, missing, cond), "'uncond'");
  ebb_guidance* none = nullptr;
  expect_error(ebb_guidance_create("cgf", h.s, 2, 3, &none), "cfg");
  expect_error(ebb_guidance_create("cfg:scael=2", h.s, 2, 3, &none), "scale");
  EXPECT_EQ(none, nullptr);
}

// ---- what there is -------------------------------------------------------------------------

TEST(c_api, lists__name_and_describe_all) {
  const auto listed = [](const char* (*name)(size_t), const char* (*describe)(const char*)) {
    size_t count = 0;
    for (; name(count) != nullptr; ++count) EXPECT_NE(describe(name(count)), nullptr);
    return count;
  };
  EXPECT_EQ(listed(ebb_sampler_name, ebb_sampler_describe), all_samplers().size());
  EXPECT_EQ(listed(ebb_schedule_name, ebb_schedule_describe), all_schedules().size());
  EXPECT_EQ(listed(ebb_noise_name, ebb_noise_describe), all_noise_sources().size());
  EXPECT_GT(listed(ebb_guidance_name, ebb_guidance_describe), 20U);
  EXPECT_NE(std::string_view(ebb_levels_describe()).find("prediction=usual"),
            std::string_view::npos);
}

}  // namespace
}  // namespace ebb
