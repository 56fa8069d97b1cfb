// The C API: what a run takes where nothing is said.
#include <gtest/gtest.h>

#include <vector>

#include "diffusion/levels/schedule.h"
#include "support/c_api.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_ok;
using testing::Handle;
using testing::levels_of;

TEST(c_api, schedule_auto__is_that_of_the_name_or_the_dialect) {
  const Discretisation sd1 = discretisation({});
  Handle h("DPM++ 2M SDE");
  expect_ok(ebb_sampler_set_schedule(h.s, "auto", 6));
  expect_ok(ebb_sampler_configure(h.s, "dialect", "a1111"));
  EXPECT_EQ(levels_of(h), noise_levels("exponential", sd1, {.steps = 6}));
  expect_error(ebb_sampler_set_schedule_option(h.s, "rho", "7"), "auto has no options");
  Handle named("DPM++ 2M SDE Karras");
  expect_ok(ebb_sampler_set_schedule(named.s, "auto", 6));
  EXPECT_EQ(levels_of(named), noise_levels("karras", sd1, {.steps = 6}));
}

// The end of a run in ComfyUI's dialect from a fixed state.
std::vector<float> end_of(const char* sampler, const char* noise) {
  Handle h(sampler);
  expect_ok(ebb_sampler_configure(h.s, "dialect", "comfy"));
  expect_ok(ebb_sampler_configure(h.s, "noise", noise));
  const double levels[] = {10, 4, 1, 0.3};
  expect_ok(ebb_sampler_set_sigmas(h.s, levels, 4));
  std::vector<float> x(20, 5);
  const auto denoise = [](void*, const float* in, double sigma, float* out, float*) {
    for (int i = 0; i < 20; ++i) out[i] = in[i] / static_cast<float>(1 + sigma * sigma);
    return 0;
  };
  expect_ok(ebb_sampler_run(h.s, x.data(), 1, 20, denoise, nullptr));
  return x;
}

TEST(c_api, noise_of_brownian_samplers__is_a_path_by_default) {
  EXPECT_EQ(end_of("dpmpp_sde", ""), end_of("dpmpp_sde", "brownian"));
  EXPECT_NE(end_of("dpmpp_sde", ""), end_of("dpmpp_sde", "comfy"));
  EXPECT_EQ(end_of("euler_ancestral", ""), end_of("euler_ancestral", "comfy"));
  EXPECT_NE(end_of("dpmpp_sde_gpu", ""), end_of("dpmpp_sde", ""));
}

}  // namespace
}  // namespace ebb
