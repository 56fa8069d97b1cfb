// Samplers made for discrete-time networks, and those of distilled ones: known results, identities.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "diffusion/solver/timesteps.h"
#include "support/files.h"
#include "support/golden_file.h"
#include "support/mixture_samples.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_same_samples;
using testing::expect_values;
using testing::karras;
using testing::run_toy;

using testing::sd_levels;

TEST(vp_samplers, six_steps_on_the_mixture__equal_published_values) {
  expect_values("ddpm", {.sigmas = sd_levels}, {1.241533962, 1.255177274});
  expect_values("lcm", {.sigmas = sd_levels}, {1.178240342, 1.178274242});
  const std::vector<double> flow = {
      1, 0.937781109445, 0.857326478149, 0.75, 0.60071942446, 0.375562218891, 0};
  expect_values("lcm", {.sigmas = flow, .space = Space::flow}, {1.032393161, 1.032393161});
}

// Where a case of the webui, which goes by timesteps, steps to. Timesteps are walked from the end
// to the first, or are chosen by UniPC, which ends at that of 1/1000.
std::vector<double> webui_levels(const nlohmann::json& c) {
  std::vector<double> levels;
  if (c["sampler"] == "unipc") {
    c["evaluated"].get_to(levels);
    levels.push_back(stable_diffusion_table()[0]);
    return levels;
  }
  for (const double t : c["timesteps"])
    levels.insert(levels.begin(), sigma_at(stable_diffusion_table(), t));
  return levels;
}

// States there are sqrt(alpha_bar) x.
void expect_webui(const nlohmann::json& c) {
  SampleCall call{.sigmas = webui_levels(c), .dialect = "a1111"};
  for (const auto& [name, value] : c["options"].items())
    if (name != "skip")  // chooses levels
      call.options.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  std::vector<double> start = c["start"];
  for (double& v : start) v *= std::hypot(1, call.sigmas.front());
  const testing::ToyRun got = run_toy(c["sampler"].get<std::string>(), start, call);
  for (size_t i = 0; i < start.size(); ++i)
    EXPECT_NEAR(got.x[i] / std::hypot(1, call.sigmas.back()), c["x"][i].get<double>(), 1e-10);
  EXPECT_EQ(got.evaluations, c["nfe"]);
  EXPECT_EQ(got.draws, c["draws"]);
}

TEST(vp_samplers, timestep_samplers__are_those_of_the_webui) {
  const nlohmann::json file = testing::read_golden("samplers/samplers_webui");
  int cases = 0;
  for (const auto& c : file["cases"]) {
    if (c.contains("grid") || c.contains("error")) continue;  // levels; the webui fails
    SCOPED_TRACE(c["sampler"].get<std::string>() + c["options"].dump() + " " + c["n"].dump());
    EXPECT_NO_THROW(expect_webui(c));
    ++cases;
  }
  EXPECT_GE(cases, 51);
}

TEST(vp_samplers, identities__hold) {
  for (const int64_t steps : {6, 20}) {
    const std::vector<double> s = karras(steps, 0.03, 14.6);
    expect_same_samples("ddpm", {s}, "euler_ancestral", {s, {{"eta", "1"}}});
    expect_same_samples("ddim", {s}, "euler", {s});
    for (const char* eta : {"0.5", "1"})
      expect_same_samples("ddim", {s, {{"eta", eta}}}, "euler_ancestral", {s, {{"eta", eta}}});
    expect_same_samples("tcd", {s, {{"eta", "0"}}}, "euler", {s});
    expect_same_samples("tcd", {{2, 0}, {{"eta", "1"}}}, "lcm", {{2, 0}});
  }
}

// Data of one point: x stays normal, with exactly the level's deviation, whatever is renewed.
TEST(vp_samplers, one_point__keeps_the_variance_of_the_level) {
  const std::vector<double> s = {10, 4, 1.5, 0.4, 0.3};
  const std::vector<std::pair<std::string, OptionTexts>> samplers = {
      {"ddpm", {}},
      {"ddim", {{"eta", "0"}}},
      {"ddim", {{"eta", "0.5"}}},
      {"ddim", {{"eta", "1"}}},
      {"tcd", {{"eta", "0.3"}}},
      {"lcm", {}},
      {"dpm_solver_multistep", {{"algorithm_type", "sde-dpmsolver++"}}},
      {"dpm_solver_singlestep", {{"algorithm_type", "sde-dpmsolver++"}}}};
  for (const auto& [name, options] : samplers) {
    testing::ToyModel model{.denoise = [](double, double) { return 0.0; }};
    model.noise = [](std::span<double> z, const NoiseDraw&) { z[0] = 0; };
    double variance = std::pow(run_toy(name, {10}, {s, options}, model).x[0], 2);
    for (int64_t k = 0; k < count(name, {s, options}).draws; ++k) {
      model.noise = [k](std::span<double> z, const NoiseDraw& d) { z[0] = d.index == k; };
      variance += std::pow(run_toy(name, {0.0}, {s, options}, model).x[0], 2);
    }
    EXPECT_NEAR(variance, 0.3 * 0.3, 1e-12) << name;
  }
}

// The transfer with noise found, written with alpha_bar as in DDIM's equation 12.
TEST(ddim, step__is_that_of_the_paper) {
  const double from = 5, to = 1.5, eta = 0.5, x = 2.3, d = 0.4, z = 1.7;
  const double bar = 1 / (1 + from * from), next = 1 / (1 + to * to);
  const double scaled = x * std::sqrt(bar);
  const double noise = (scaled - std::sqrt(bar) * d) / std::sqrt(1 - bar);
  const double deviation = eta * std::sqrt((1 - next) / (1 - bar) * (1 - bar / next));
  const double want =
      std::sqrt(next) * d + std::sqrt(1 - next - deviation * deviation) * noise + deviation * z;
  const testing::ToyModel model{
      .denoise = [d](double, double) { return d; },
      .noise = [z](std::span<double> out, const NoiseDraw&) { out[0] = z; }};
  const double got =
      run_toy("ddim", {x}, {.sigmas = {from, to}, .options = {{"eta", "0.5"}}}, model).x[0];
  EXPECT_NEAR(got * std::sqrt(next), want, 1e-12);
}

TEST(ddpm, fixed_large__adds_variance_beta) {
  const double from = 5, to = 1.5;
  const testing::ToyModel model{
      .denoise = [](double, double) { return 0.0; },
      .noise = [](std::span<double> out, const NoiseDraw&) { out[0] = 1; }};
  const SampleCall call{.sigmas = {from, to}, .options = {{"variance_type", "fixed_large"}}};
  const double added = run_toy("ddpm", {0.0}, call, model).x[0] / std::hypot(1, to);
  EXPECT_NEAR(added * added, 1 - (1 + to * to) / (1 + from * from), 1e-12);
}

// With eta 1 nothing is left of x; with 0 no noise comes in. Timesteps are whole.
TEST(tcd, level_below__is_at_an_integer_timestep) {
  const std::vector<double>& table = stable_diffusion_table();
  const SampleCall call{
      .sigmas = {table[800], table[333]}, .options = {{"eta", "0.3"}}, .dialect = "diffusers"};
  const testing::ToyModel model{
      .denoise = [](double, double) { return 0.0; },
      .noise = [](std::span<double> out, const NoiseDraw&) { out[0] = 1; }};
  const double noise = run_toy("tcd", {0.0}, call, model).x[0];
  EXPECT_EQ(noise, 0) << "the last step";
  SampleCall more = call;
  more.sigmas.push_back(table[10]);
  std::vector<double> seen;
  more.progress = [&](const Progress& p) {
    seen.push_back(p.sigma);
    return true;
  };
  const double s = table[233], last = table[10] / table[333];  // 0.7 * 333 = 233.1
  EXPECT_NEAR(run_toy("tcd", {0.0}, more, model).x[0],
              last * std::sqrt(table[333] * table[333] - s * s), 1e-9);
  EXPECT_EQ(seen, (std::vector<double>{table[333], table[10]}));
}

TEST(lcm, noise__changes_evenly_and_is_clipped) {
  const testing::ToyModel model{.denoise = [](double, double) { return 0.0; },
                                .noise =
                                    [](std::span<double> out, const NoiseDraw& d) {
                                      out[0] = 1;
                                      out[1] = -1;
                                      out[2] = d.index == 1 ? 6 : 0;
                                    }};
  SampleCall call{.sigmas = {4, 3, 2}, .options = {{"s_noise", "1"}, {"s_noise_end", "0.5"}}};
  EXPECT_EQ(run_toy("lcm", {0.0, 0, 0}, call, model).x[2], 2 * 0.5 * 6);
  call.options.push_back({"noise_clip_std", "1"});
  const double deviation = std::sqrt((1 + 9 + 16) / 2.0);  // around the mean 2, of three: unbiased
  EXPECT_NEAR(run_toy("lcm", {0.0, 0, 0}, call, model).x[2], deviation, 1e-12);
}

// Two evaluations in the first step; Runge and Kutta's take four in each of three.
TEST(plms, start__costs_as_stated) {
  const std::vector<double> s = karras(8, 0.03, 14.6);
  EXPECT_EQ(count("plms", {s}).evaluations, 9);
  EXPECT_EQ(count("pndm", {s}).evaluations, 8 + 3 * 3);
}

TEST(timesteps, of_levels__are_found_again) {
  const std::vector<double>& table = stable_diffusion_table();
  EXPECT_NEAR(table[0], 0.029167158152, 1e-11);
  EXPECT_NEAR(table[500], 1.618278826, 1e-8);
  EXPECT_NEAR(table[999], 14.614641229, 1e-8);
  EXPECT_NEAR(timestep_of(table, 1), 353.890411, 1e-6);
  EXPECT_NEAR(timestep_of(table, 5), 795.173078, 1e-6);
  EXPECT_NEAR(sigma_at(table, 500.5), 1.620983194, 1e-8);
  for (const double t : {0.0, 1.0, 17.25, 998.5, 999.0})
    EXPECT_NEAR(timestep_of(table, sigma_at(table, t)), t, 1e-9);
  EXPECT_EQ(timestep_of(table, 1e-3), 0);
  EXPECT_EQ(timestep_of(table, 100), 999);
}

TEST(vp_samplers, flow_models__are_refused) {
  for (const char* sampler : {"ddpm", "ddim", "tcd", "plms", "pndm"})
    testing::expect_error(
        [&] {
          run_toy(sampler, {1.0}, {.sigmas = {1, 0}, .space = Space::flow});
        },
        "does not support flow models; these do: ");
}

}  // namespace
}  // namespace ebb
