// What holds for every sampler: identities between them, batches, floats, many steps, cost.
#include <gtest/gtest.h>

#include <ctime>
#include <set>

#include "diffusion/solver/sampler.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::karras;
using testing::run_toy;

bool has_option(const Sampler& s, std::string_view name) {
  for (const Option& o : s.options())
    if (o.name == name) return true;
  return false;
}

// ---- names ---------------------------------------------------------------------------------

TEST(sampler_names, are_found_as_programs_write_them) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"Euler a", "euler_ancestral"},
      {"DPM++ 2M", "dpmpp_2m"},
      {"DPM++ 2M SDE Heun", "dpmpp_2m_sde"},
      {"DPM++ 2S a", "dpmpp_2s_ancestral"},
      {"DPM2 a", "dpm_2_ancestral"},
      {"DPM fast", "dpm_fast"},
      {"Heun++ 2", "heunpp2"},
      {"sample_dpmpp_3m_sde", "dpmpp_3m_sde"},
      {"sample_euler", "euler"},
      {"dpmpp_2s_a", "dpmpp_2s_ancestral"},
      {"dpm2_a", "dpm_2_ancestral"},
      {"EulerAncestralDiscreteScheduler", "euler_ancestral"},
      {"KDPM2AncestralDiscreteScheduler", "dpm_2_ancestral"},
      {"LMSDiscrete", "lms"},
      {"DPMSolverSDEScheduler", "dpmpp_sde"},
      {"FlowMatchHeunDiscreteScheduler", "heun"},
  };
  for (const auto& [name, ours] : names) EXPECT_EQ(find_sampler(name).sampler->name, ours) << name;
}

TEST(sampler_names, differ_however_they_are_written) {
  std::set<std::string> seen;
  for (const Sampler* s : all_samplers()) {
    EXPECT_TRUE(seen.insert(plain_name(s->name)).second) << s->name;
    for (const SamplerAlias& a : s->aliases)
      EXPECT_TRUE(seen.insert(plain_name(a.name)).second) << a.name;
  }
}

// ---- identities ----------------------------------------------------------------------------

struct Named {
  std::string sampler;
  OptionTexts options = {};
};

TEST(samplers, that_are_one__agree) {
  const OptionTexts eta0 = {{"eta", "0"}};
  const std::vector<std::vector<Named>> groups = {
      {{"euler"}, {"euler_ancestral", eta0}, {"ddim"}, {"lms", {{"order", "1"}}}},
      {{"euler_ancestral"}, {"ddpm"}},
      {{"dpm_2"}, {"dpm_2_ancestral", eta0}},
      {{"dpmpp_2s_ancestral", eta0}, {"dpmpp_sde", eta0}, {"seeds_2", eta0}},
      {{"dpmpp_2m"}, {"dpmpp_2m_sde", eta0}},
      {{"dpmpp_2m_sde", {{"eta", "0"}, {"solver_type", "heun"}}}, {"res_multistep"}},
      {{"gradient_estimation", {{"ge_gamma", "1.5"}}}, {"ipndm", {{"max_order", "2"}}}},
      {{"lms"}, {"deis_rhoab"}},
      {{"exp_heun_2_x0"}, {"seeds_2", {{"r", "1"}, {"solver_type", "phi_2"}, {"eta", "0"}}}},
      {{"restart", {{"restarts", "0"}}}, {"heun"}},
  };
  for (const int64_t steps : {6, 20})
    for (const std::vector<Named>& group : groups) {
      std::vector<double> want;
      for (const Named& n : group) {
        const SampleCall call{.sigmas = karras(steps, 0.03, 14.6), .options = n.options};
        const std::vector<double> x = run_toy(n.sampler, {-6, 3.1, 0.4}, call).x;
        if (want.empty()) want = x;
        for (size_t i = 0; i < x.size(); ++i)
          EXPECT_NEAR(x[i], want[i], 1e-12) << n.sampler << " and " << group[0].sampler;
      }
    }
}

// ---- batches and floats --------------------------------------------------------------------

// Its error, or its noise's deviation, is that of the whole batch.
bool mixes_images(const Sampler& s) { return s.adaptive; }

TEST(samplers, images__are_the_same_alone_and_in_a_batch) {
  const std::vector<double> images = {-6, 3.1, 0.4};
  testing::ToyModel model;
  // Other numbers for every image, known by its place or by its start.
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.sigmas = karras(8, 0.03, 14.6)};
    if (mixes_images(*s)) continue;
    model.noise = [](std::span<double> z, const NoiseDraw& d) {
      for (size_t i = 0; i < z.size(); ++i)
        z[i] = std::sin(static_cast<double>(i + 1) * 1.7 + static_cast<double>(d.index));
    };
    const std::vector<double> together = run_toy(s->name, images, call, model).x;
    for (size_t i = 0; i < images.size(); ++i) {
      model.noise = [i](std::span<double> z, const NoiseDraw& d) {
        z[0] = std::sin(static_cast<double>(i + 1) * 1.7 + static_cast<double>(d.index));
      };
      EXPECT_EQ(run_toy(s->name, {images[i]}, call, model).x[0], together[i]) << s->name;
    }
  }
}

std::vector<double> run_floats(const Sampler& s, const std::vector<float>& start,
                               const SampleCall& call) {
  const testing::ToyModel model;
  HostLatents<float> latents(
      start.size(),
      [&](std::span<const float> x, double sigma, std::span<float> d, std::span<float> u) {
        for (size_t i = 0; i < x.size(); ++i) d[i] = static_cast<float>(model.denoise(x[i], sigma));
        for (size_t i = 0; i < u.size(); ++i) u[i] = static_cast<float>(model.uncond(x[i], sigma));
      },
      model.noise);
  return latents.values(sample(s.name, latents, latents.put(start), call));
}

TEST(samplers, floats__are_near_doubles) {
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.sigmas = karras(8, 0.03, 14.6)};
    if (s->adaptive) continue;
    const std::vector<double> want = run_toy(s->name, {-6, 3.1}, call).x;
    const std::vector<double> x = run_floats(*s, {-6, 3.1F}, call);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(x[i], want[i], 2e-5 * std::max(1.0, std::abs(want[i]))) << s->name;
  }
}

// ---- steps, noise, both spaces -------------------------------------------------------------

TEST(samplers, any_steps_and_eta__give_finite_data) {
  for (const Sampler* s : all_samplers())
    for (const int64_t steps : {1, 2, 3, 4, 50, 1000})
      for (const char* eta : {"0", "0.5", "1"}) {
        SampleCall call{.sigmas = karras(steps, 0.03, 14.6)};
        if (has_option(*s, "eta")) call.options = {{"eta", eta}};
        if (s->name == "er_sde") call.options.push_back({"solver_type", "reverse_sde"});
        const std::vector<double> x = run_toy(s->name, {-6, 3.1}, call).x;
        for (const double v : x) EXPECT_LT(std::abs(v), 100) << s->name << " " << steps;
      }
}

TEST(samplers, flow_models__give_finite_data) {
  testing::ToyModel model;
  model.denoise = testing::on_flow(model.denoise);
  model.uncond = testing::on_flow(model.uncond);
  for (const Sampler* s : all_samplers())
    for (const int64_t steps : {1, 2, 3, 20, 1000}) {
      if (!s->flow) continue;
      std::vector<double> sigmas;
      for (int64_t i = 0; i <= steps; ++i)
        sigmas.push_back(1 - static_cast<double>(i) / static_cast<double>(steps));
      const SampleCall call{.sigmas = sigmas, .space = Space::flow};
      for (const double v : run_toy(s->name, {-0.4, 0.2}, call, model).x)
        EXPECT_LT(std::abs(v), 100) << s->name << " " << steps;
    }
}

TEST(samplers, noise_that_is_not_of_flow_models__is_refused) {
  const SampleCall churn{
      .sigmas = {1, 0.5, 0}, .options = {{"s_churn", "1"}}, .space = Space::flow};
  for (const char* name : {"euler", "heun", "dpm_2", "heunpp2"})
    EXPECT_THROW(run_toy(name, {0.1}, churn), Error) << name;
  const SampleCall eta{.sigmas = {1, 0.5, 0.1}, .options = {{"eta", "1"}}, .space = Space::flow};
  for (const char* name : {"dpm_fast", "dpm_adaptive"})
    EXPECT_THROW(run_toy(name, {0.1}, eta), Error) << name;
}

// ---- cost ----------------------------------------------------------------------------------

// Times say nothing about a build with sanitizers.
#ifndef EBB_SANITIZE

#ifdef __OPTIMIZE__
constexpr double most_milliseconds = 1;
#else
constexpr double most_milliseconds = 10;
#endif

// A step on a [1,128,128,4] latent, beside denoiser and noise. Time of this process alone, the best
// of some tries, so that other work on the machine does not count.
TEST(samplers, a_step_of_one_evaluation__takes_less_than_a_millisecond) {
  constexpr size_t size = 128 * 128 * 4;
  constexpr int64_t steps = 10;
  constexpr int tries = 20;
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.sigmas = karras(steps, 0.03, 14.6)};
    if (s->adaptive || count(s->name, call).evaluations != steps) continue;
    HostLatents<float> latents(
        size,
        [](std::span<const float>, double, std::span<float> d, std::span<float> u) {
          std::fill(d.begin(), d.end(), 0.1F);
          std::fill(u.begin(), u.end(), 0.1F);
        },
        [](std::span<double> z, const NoiseDraw&) { std::fill(z.begin(), z.end(), 0.5); });
    const Latent start = latents.put(std::vector<float>(size, 3.0F));
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < tries && best >= most_milliseconds; ++i) {
      const std::clock_t begin = std::clock();
      latents.values(sample(s->name, latents, start, call));
      const auto took = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC * 1e3;
      best = std::min(best, took / steps);
    }
    EXPECT_LT(best, most_milliseconds) << s->name;
    if (std::getenv("EBB_TIMES")) std::cout << s->name << " " << best << " ms\n";
  }
}

#endif

}  // namespace
}  // namespace ebb
