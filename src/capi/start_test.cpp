// The C API's starts from an image: inpainting, differential diffusion, refiners, stretches.
#include <cmath>
#include <string>

#include "diffusion/start/inpaint.h"
#include "support/c_api.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_ok;
using testing::Handle;
using testing::levels_of;

constexpr size_t length = 4;

struct Seen {
  std::vector<double> sigmas;
  std::vector<std::vector<float>> inputs;
};

int recording_toy(void* user, const float* x, double sigma, float* denoised, float*) {
  auto& seen = *static_cast<Seen*>(user);
  seen.sigmas.push_back(sigma);
  seen.inputs.emplace_back(x, x + length);
  for (size_t i = 0; i < length; ++i)
    denoised[i] = static_cast<float>(testing::Mixture{}.denoise(static_cast<double>(x[i]), sigma));
  return 0;
}

TEST(c_api, inpaint__restores_known_regions_and_changes_no_other) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
  float plain[length], x[length];
  Seen seen;
  expect_ok(ebb_sampler_start(h.s, nullptr, 1, length, x));
  std::copy(x, x + length, plain);
  expect_ok(ebb_sampler_run(h.s, plain, 1, length, recording_toy, &seen));
  const float data[length] = {3, 4, 5, 6}, mask[length] = {0, 1, 1, 0};
  const ebb_inpaint how{.count = length, .data = data, .mask = mask, .input = 1, .output = 1};
  expect_ok(ebb_sampler_set_inpaint(h.s, &how));
  const float first = x[0] / static_cast<float>(levels_of(h)[0]);
  expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
  for (size_t i = 0; i < length; ++i) EXPECT_EQ(x[i], mask[i] == 0 ? data[i] : plain[i]);
  // The network saw the known part with the start's noise.
  for (size_t k = 8; k < 16; ++k)
    EXPECT_NEAR(seen.inputs[k][0], 3 + seen.sigmas[k] * static_cast<double>(first), 1e-4);
  expect_error(ebb_sampler_run(h.s, x, 1, length - 1, recording_toy, &seen),
               "the data have 4 values");
  expect_ok(ebb_sampler_set_inpaint(h.s, nullptr));
  expect_ok(ebb_sampler_start(h.s, nullptr, 1, length, x));
  expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
  EXPECT_EQ(x[0], plain[0]);
}

TEST(c_api, inpaint__is_where_the_dialect_has_it) {
  const float data[length] = {3, 4, 5, 6}, mask[length] = {0, 1, 1, 0};
  const ebb_inpaint how{.count = length, .data = data, .mask = mask};
  const std::pair<const char*, bool> sees_known[] = {
      {"comfy", true}, {"diffusers", true}, {"a1111", false}, {"sdcpp", false}};
  for (const auto& [dialect, input] : sees_known) {
    Handle h("euler");
    expect_ok(ebb_sampler_configure(h.s, "dialect", dialect));
    expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
    expect_ok(ebb_sampler_set_inpaint(h.s, &how));
    float x[length] = {9, 9, 9, 9};
    Seen seen;
    expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
    EXPECT_EQ(x[0], 3) << dialect;
    EXPECT_EQ(x[3], 6) << dialect;
    // What the network sees at first: x as it is, or known parts.
    EXPECT_EQ(seen.inputs[0][0] == 9, !input) << dialect;
    EXPECT_EQ(seen.inputs[0][1], 9) << dialect;
  }
}

// diffusers' pipelines round masks; others mix.
TEST(c_api, soft_masks__are_rounded_where_the_program_does) {
  const float data[length] = {3, 4, 5, 6}, mask[length] = {0.3F, 0.7F, 0, 1}, noise[length] = {};
  const ebb_inpaint how{.count = length, .data = data, .mask = mask, .noise = noise};
  const auto end = [&](const char* dialect) {
    Handle h("euler");
    expect_ok(ebb_sampler_configure(h.s, "dialect", dialect));
    expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
    expect_ok(ebb_sampler_set_inpaint(h.s, &how));
    std::vector<float> x(length, 9);
    Seen seen;
    expect_ok(ebb_sampler_run(h.s, x.data(), 1, length, recording_toy, &seen));
    return x;
  };
  const std::vector<float> rounded = end("diffusers"), mixed = end("a1111");
  EXPECT_EQ(rounded[0], 3);
  EXPECT_NE(mixed[0], 3);
  EXPECT_EQ(rounded[2], 3 + 2);
}

// Parts that were opened half way are not closed again at the end.
TEST(c_api, differential_masks__are_restored_only_where_all_is_known) {
  const float data[length] = {7, 7, 7, 7}, mask[length] = {1, 0.5F, 0.25F, 0}, noise[length] = {};
  const auto end = [&](int at_end) {
    Handle h("euler");
    expect_ok(ebb_sampler_set_schedule(h.s, "karras", 8));
    const ebb_inpaint how{.count = length,
                          .data = data,
                          .mask = mask,
                          .noise = noise,
                          .input = 1,
                          .end = at_end,
                          .differential = 1};
    expect_ok(ebb_sampler_set_inpaint(h.s, &how));
    std::vector<float> x(length, 2);
    Seen seen;
    expect_ok(ebb_sampler_run(h.s, x.data(), 1, length, recording_toy, &seen));
    return x;
  };
  const std::vector<float> open = end(0), put_back = end(1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(put_back[i], open[i]);
  EXPECT_EQ(put_back[3], 7);
}

TEST(c_api, inpaint__refuses_what_makes_no_sense) {
  Handle h("euler");
  const float data[2] = {}, mask[2] = {0, 1.5F};
  ebb_inpaint how{.count = 2, .data = data, .mask = data};
  expect_ok(ebb_sampler_set_inpaint(h.s, &how));
  how.mask = mask;
  expect_error(ebb_sampler_set_inpaint(h.s, &how), "must lie in [0, 1] (1.5)");
  how.mask = nullptr;
  expect_error(ebb_sampler_set_inpaint(h.s, &how), "mask of inpainting must not be NULL");
}

TEST(c_api, differential_masks__open_when_their_fraction_of_the_time_is_left) {
  Handle h("euler");
  expect_ok(ebb_sampler_configure(h.s, "space", "flow"));
  const double sigmas[] = {1, 0.8, 0.6, 0.4, 0.2, 0};
  expect_ok(ebb_sampler_set_sigmas(h.s, sigmas, 6));
  const float data[length] = {7, 7, 7, 7}, mask[length] = {1, 0.5F, 0.25F, 0}, noise[length] = {};
  const ebb_inpaint how{
      .count = length, .data = data, .mask = mask, .noise = noise, .input = 1, .differential = 1};
  expect_ok(ebb_sampler_set_inpaint(h.s, &how));
  float x[length] = {0.5F, 0.5F, 0.5F, 0.5F};
  Seen seen;
  expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
  for (size_t k = 0; k < 5; ++k)
    for (size_t i = 0; i < length; ++i) {
      const float known = static_cast<float>(7 * (1 - sigmas[k]));
      EXPECT_EQ(seen.inputs[k][i] == known, static_cast<double>(mask[i]) < sigmas[k] - 1e-3)
          << sigmas[k] << " " << i;
    }
}

TEST(c_api, refiner_step__is_that_of_the_rule) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_schedule(h.s, "normal", 10));
  const std::vector<double> sigmas = levels_of(h);
  int64_t step = 0;
  expect_ok(ebb_sampler_refiner_step(h.s, "steps", 0.8, &step));
  EXPECT_EQ(step, 8);
  const auto timestep = [&](int64_t i) {
    double t = 0;
    expect_ok(ebb_network_input(h.s, sigmas[static_cast<size_t>(i)], nullptr, &t));
    return t;
  };
  expect_ok(ebb_sampler_refiner_step(h.s, "timestep", 0.8, &step));
  EXPECT_LT(timestep(step), 200);
  EXPECT_GE(timestep(step - 1), 199);  // the rule uses integer timesteps
  expect_ok(ebb_sampler_refiner_step(h.s, "level", 0.8, &step));
  EXPECT_LT(timestep(step), 200);
  EXPECT_GE(timestep(step - 1), 199);
  expect_error(ebb_sampler_refiner_step(h.s, "stepps", 0.8, &step), "did you mean 'steps'?");
  expect_error(ebb_sampler_refiner_step(h.s, "steps", 1.5, &step), "[0, 1]");
  expect_ok(ebb_sampler_set_levels(h.s, "levels", "edm"));
  expect_ok(ebb_sampler_set_schedule(h.s, "karras", 10));
  expect_error(ebb_sampler_refiner_step(h.s, "timestep", 0.8, &step), "have no timesteps");
}

TEST(c_api, two_stretches__are_one_run) {
  for (const char* space : {"ve", "flow"}) {
    Handle h("euler");
    expect_ok(ebb_sampler_configure(h.s, "space", space));
    expect_ok(ebb_sampler_set_schedule(h.s, "simple", 6));
    float x[length] = {0.5F, -0.25F, 1, 2}, whole[length] = {0.5F, -0.25F, 1, 2};
    Seen seen;
    expect_ok(ebb_sampler_run(h.s, whole, 1, length, recording_toy, &seen));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "end_at_step", "4"));
    expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
    const double sigma = levels_of(h).back();
    const float held = x[0];
    expect_ok(ebb_sampler_finish(h.s, sigma, length, x));
    const double alpha = std::string(space) == "flow" ? 1 - sigma : 1;
    EXPECT_FLOAT_EQ(x[0], static_cast<float>(static_cast<double>(held) / alpha));
    for (float& v : x) v = static_cast<float>(static_cast<double>(v) * alpha);
    expect_ok(ebb_sampler_set_schedule(h.s, "simple", 6));
    expect_ok(ebb_sampler_set_schedule_option(h.s, "start_at_step", "4"));
    expect_ok(ebb_sampler_run(h.s, x, 1, length, recording_toy, &seen));
    for (size_t i = 0; i < length; ++i) EXPECT_NEAR(x[i], whole[i], 1e-6) << space;
  }
}

TEST(c_api, sag_blur__blurs_where_attention_falls) {
  Handle h("euler");
  expect_ok(ebb_sampler_set_shape(h.s, 3, 3, 1));
  ebb_guidance* g = nullptr;
  expect_ok(ebb_guidance_create("cfg;sag", h.s, 2, 9, &g));
  float uncond[18] = {}, attention[18] = {}, out[18];
  uncond[4] = uncond[13] = 1;
  for (size_t i = 9; i < 18; ++i) attention[i] = 2;
  const ebb_sag how{.size = 3, .sigma = 1, .threshold = 1};
  expect_ok(ebb_guidance_sag_blur(g, &how, uncond, attention, out));
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(out[i], uncond[i]);
  EXPECT_LT(out[13], 0.5F);
  EXPECT_GT(out[12], 0.05F);
  expect_ok(ebb_guidance_sag_blur(g, nullptr, uncond, attention, out));
  const ebb_sag even{.size = 2, .sigma = 1, .threshold = 1};
  expect_error(ebb_guidance_sag_blur(g, &even, uncond, attention, out), "size must be odd");
  ebb_guidance_destroy(g);
}

}  // namespace
}  // namespace ebb
