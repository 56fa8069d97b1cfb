// The C API: the same numbers as the C++ one, statuses instead of exceptions.
#include <gtest/gtest.h>

#include <cstring>

#include "support/c_api.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::Handle;

constexpr size_t points = 6;
struct User {
  int calls = 0, stop_at = -1;
};

int counted_toy(void* user, const float* x, double sigma, float* denoised, float* uncond) {
  auto& u = *static_cast<User*>(user);
  for (size_t i = 0; i < points; ++i)
    denoised[i] = static_cast<float>(testing::Mixture{}.denoise(static_cast<double>(x[i]), sigma));
  if (uncond != nullptr) std::memcpy(uncond, denoised, points * sizeof(float));
  return ++u.calls == u.stop_at ? 1 : 0;
}

TEST(c_api, every_sampler__gives_the_numbers_of_the_cpp_one) {
  const std::vector<double> sigmas = testing::karras(5, 0.03, 14);
  for (const Sampler* sampler : all_samplers()) {
    Handle h(sampler->name.c_str());
    ASSERT_EQ(ebb_sampler_configure(h.s, "seed", "12"), EBB_OK);
    ASSERT_EQ(ebb_sampler_set_sigmas(h.s, sigmas.data(), sigmas.size()), EBB_OK);
    float x[points];
    ASSERT_EQ(ebb_sampler_start(h.s, nullptr, 2, points / 2, x), EBB_OK);
    User user;
    const ebb_status status = ebb_sampler_run(h.s, x, 2, points / 2, counted_toy, &user);
    const ImageKeys keys{.seed = 12, .images = {0, 1}, .elements = points / 2};
    const testing::ToyModel model{.uncond = testing::mixture_denoiser(),
                                  .noise = keyed_noise(keys)};
    std::vector<double> start = initial_noise(keys);
    for (double& v : start) v *= sigmas[0];
    testing::ToyRun want;
    try {
      want = run_toy(sampler->name, start, {.sigmas = sigmas}, model);
    } catch (const Error& e) {  // a sampler that needs more than levels
      EXPECT_EQ(status, EBB_ERROR);
      EXPECT_STREQ(ebb_last_error(), e.what());
      continue;
    }
    ASSERT_EQ(status, EBB_OK) << sampler->name << ": " << ebb_last_error();
    // Floats against doubles. Adaptive samplers, whose steps depend on rounding, promise no more
    // than an error of rtol (0.05) a step; of two runs only a part of that is left.
    const double tolerance = sampler->adaptive ? 1e-2 : 1e-4;
    for (size_t i = 0; i < points; ++i)
      EXPECT_NEAR(static_cast<double>(x[i]), want.x[i], tolerance * (1 + std::abs(want.x[i])))
          << sampler->name;
    if (!sampler->adaptive) {
      EXPECT_EQ(user.calls, want.evaluations) << sampler->name;
    }
  }
}

TEST(c_api, callbacks__stop_a_run_and_leave_x) {
  Handle h("heun");
  const double sigmas[] = {4, 2, 1, 0};
  ASSERT_EQ(ebb_sampler_set_sigmas(h.s, sigmas, 4), EBB_OK);
  float x[points] = {1, 2, 3, 4, 5, 6};
  User user{.stop_at = 3};
  EXPECT_EQ(ebb_sampler_run(h.s, x, 1, points, counted_toy, &user), EBB_CANCELLED);
  EXPECT_EQ(user.calls, 3);
  EXPECT_EQ(x[5], 6);
  const auto after_two = [](void*, int64_t step, int64_t, double, const float*) {
    return step == 2 ? 1 : 0;
  };
  ASSERT_EQ(ebb_sampler_set_progress(h.s, after_two, nullptr), EBB_OK);
  User other;
  EXPECT_EQ(ebb_sampler_run(h.s, x, 1, points, counted_toy, &other), EBB_CANCELLED);
  EXPECT_EQ(other.calls, 4);
  EXPECT_EQ(x[0], 1);
}

TEST(c_api, names_of_other_programs__are_known) {
  for (const char* name :
       {"UniPCMultistepScheduler", "DEISMultistepScheduler", "EDMDPMSolverMultistepScheduler",
        "CosineDPMSolverMultistepScheduler", "FlowMatchLCMScheduler",
        "LTXEulerAncestralRFScheduler", "DPM++ 2M SDE", "sample_dpmpp_2m"})
    const Handle h(name);
  ebb_sampler* none = nullptr;
  expect_error(ebb_sampler_create("DPM++ 2M Beta", &none),
               "('DPM++ 2M' is dpmpp_2m; a schedule, such as Beta, is chosen apart)");
  expect_error(ebb_sampler_create("DPM++2M-SDEE", &none), "did you mean 'dpmpp_2m_sde'?");
}

TEST(c_api, wrong_calls__are_statuses_with_a_text) {
  ebb_sampler* none = nullptr;
  expect_error(ebb_sampler_create("eulr", &none), "did you mean 'euler'?");
  EXPECT_EQ(none, nullptr);
  expect_error(ebb_sampler_create(nullptr, &none), "name must not be NULL");
  Handle h("euler_ancestral");
  expect_error(ebb_sampler_set(h.s, "etta", "1"), "etta");
  expect_error(ebb_sampler_set(h.s, "eta", "much"), "eta");
  expect_error(ebb_sampler_configure(h.s, "space", "vee"), "ve or flow");
  expect_error(ebb_sampler_configure(h.s, "colour", "red"), "unknown key 'colour'");
  User user;
  float x[points] = {};
  expect_error(ebb_sampler_run(h.s, x, 1, points, counted_toy, &user), "needs a noise level");
  const double rising[] = {1, 2};
  expect_error(ebb_sampler_set_sigmas(h.s, rising, 2), "must fall");
  expect_error(ebb_sampler_run(h.s, x, 0, points, counted_toy, &user), "at least one number");
  // 2^62 images of 4 numbers are 0 numbers to a machine.
  expect_error(ebb_sampler_run(h.s, x, size_t{1} << 62, 4, counted_toy, &user), "no buffer holds");
  EXPECT_EQ(ebb_sampler_describe("nothing"), nullptr);
  EXPECT_NE(std::string_view(ebb_sampler_describe("heun")).find("alpha=1"), std::string_view::npos);
  EXPECT_EQ(ebb_sampler_name(100000), nullptr);
  EXPECT_EQ(ebb_dialect_name(100000), nullptr);
  EXPECT_STREQ(ebb_dialect_name(0), "ebb");
  const double falling[] = {2, 1};
  ASSERT_EQ(ebb_sampler_set_sigmas(h.s, falling, 2), EBB_OK);
  ASSERT_EQ(ebb_sampler_set(h.s, "eta", "-1"), EBB_OK);
  expect_error(ebb_sampler_count(h.s, nullptr, nullptr), "must not be negative");
  EXPECT_EQ(ebb_sampler_set(h.s, "eta", "0.5"), EBB_OK);
  EXPECT_STREQ(ebb_last_error(), "");
  EXPECT_EQ(ebb_sampler_run(h.s, x, 1, points, counted_toy, &user), EBB_OK);
}

}  // namespace
}  // namespace ebb
