// Samplers that integrate the exponential exactly: known results, identities, weights, draws.
#include "diffusion/solver/exponential.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/mixture_samples.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::expect_same_samples;
using testing::expect_values;
using testing::karras;
using testing::run_toy;

using testing::sd_levels;
// Of 1000 timesteps, shift 3.
const std::vector<double> flow_levels = {
    1, 0.937781109445, 0.857326478149, 0.75, 0.60071942446, 0.375562218891, 0};

SampleCall flow_call(OptionTexts options = {}) {
  const double t = 1 - 1e-4;
  return {.sigmas = flow_levels,
          .options = std::move(options),
          .space = Space::flow,
          .dialect = "comfy",
          .first_sigma = 3 * t / (1 + 2 * t)};
}

SampleCall comfy_call(OptionTexts options = {}) {
  return {.sigmas = sd_levels, .options = std::move(options), .dialect = "comfy"};
}

TEST(exponential_samplers, six_steps_on_the_mixture__equal_published_values) {
  expect_values("res_multistep", comfy_call(), {-0.506861018, 0.857295678});
  expect_values("seeds_2", comfy_call(), {1.080901364, 1.088973939});
  expect_values("exp_heun_2_x0_sde", comfy_call(), {1.101508432, 1.111206819});
  expect_values("seeds_3", comfy_call({{"eta", "0"}}), {-0.672976548, 0.649306431});
  expect_values("seeds_3", comfy_call(), {-0.050031429, -0.040842332});
  expect_values("er_sde", comfy_call(), {1.074452522, 1.236824668});
  expect_values("gradient_estimation", comfy_call(), {-0.509980664, 0.751172320});
}

TEST(exponential_samplers, six_steps_on_a_flow_model__equal_published_values) {
  expect_values("seeds_2", flow_call(), {0.351595102, 0.351616824});
  expect_values("exp_heun_2_x0_sde", flow_call(), {0.671423934, 0.671431571});
  expect_values("er_sde", flow_call(), {1.232288730, 1.232288946});
  expect_values("seeds_3", flow_call(), {-1.288872916, -1.288870599});
}

TEST(exponential_samplers, predictors_and_correctors__equal_published_values) {
  expect_values("sa_solver", comfy_call({{"eta", "0"}}), {-0.566599839, 0.777657093});
  expect_values("sa_solver", comfy_call(), {1.757537720, 1.752030930});
  expect_values("sa_solver_pece", comfy_call(), {1.683766126, 1.685494424});
  expect_values("sa_solver", flow_call({{"eta", "0"}}), {-0.239399421, 0.628591216});
  expect_values("sa_solver", flow_call(), {1.200522593, 1.200526835});
  expect_values("sa_solver_pece", flow_call(), {1.259420746, 1.259424652});
  SampleCall call = comfy_call();
  call.sigmas = karras(7, testing::sd_sigma_min, testing::sd_sigma_max);
  call.sigmas.erase(call.sigmas.end() - 2);
  const auto uni_pc = [&](const char* variant, const char* order, const std::vector<double>& want) {
    call.options = {{"variant", variant}, {"order", order}};
    expect_values("uni_pc", call, want);
  };
  uni_pc("bh1", "2", {-0.755742191, 0.846378792});
  uni_pc("bh1", "3", {-0.781226563, 0.863742119});
  uni_pc("bh2", "2", {-0.496873143, 0.738989484});
  uni_pc("bh2", "3", {-0.693012531, 0.778234048});
}

// ---- identities ----------------------------------------------------------------------------

TEST(exponential_samplers, identities__hold) {
  for (const int64_t steps : {6, 20}) {
    const std::vector<double> s = karras(steps, 0.03, 14.6);
    expect_same_samples("seeds_2", {s, {{"eta", "0"}}}, "dpmpp_sde", {s, {{"eta", "0"}}});
    expect_same_samples("seeds_2", {s, {{"eta", "0"}, {"solver_type", "phi_2"}}}, "res_2s", {s});
    expect_same_samples("seeds_2", {s, {{"r", "1"}, {"solver_type", "phi_2"}}}, "exp_heun_2_x0_sde",
                        {s});
    expect_same_samples("gradient_estimation", {s, {{"ge_gamma", "1.5"}}}, "ipndm",
                        {s, {{"max_order", "2"}}});
    expect_same_samples("gradient_estimation", {s, {{"ge_gamma", "1"}}}, "euler", {s});
    const std::vector<double> open(s.begin(), s.end() - 1);  // without the step to 0
    expect_same_samples("sa_solver",
                        {open, {{"eta", "0"}, {"predictor_order", "2"}, {"corrector_order", "0"}}},
                        "res_multistep", {open});
    const OptionTexts unip = {{"corrector", "false"}, {"lower_order_final", "false"}};
    OptionTexts second = unip, third = unip;
    second.insert(second.end(), {{"variant", "bh2"}, {"order", "2"}});
    expect_same_samples("uni_pc", {open, second}, "dpmpp_2m", {open});
    third.insert(third.end(), {{"variant", "vary_coeff"}, {"order", "3"}});
    expect_same_samples("uni_pc", {open, third}, "dpmpp_3m_sde_exact", {open, {{"eta", "0"}}});
  }
}

// Where the condition changes nothing, CFG++ is the sampler itself.
TEST(exponential_samplers, cfg_pp__without_guidance_changes_nothing) {
  const testing::ToyModel model{.uncond = testing::mixture_denoiser()};
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"euler_ancestral_cfg_pp", "euler_ancestral"},
      {"euler_cfg_pp", "euler"},
      {"dpmpp_2s_ancestral_cfg_pp", "dpmpp_2s_ancestral"},
      {"dpmpp_2m_cfg_pp", "dpmpp_2m"},
      {"res_multistep_ancestral_cfg_pp", "res_multistep_ancestral"},
      {"gradient_estimation_cfg_pp", "gradient_estimation"}};
  const SampleCall call{.sigmas = karras(8, 0.03, 14.6)};
  for (const auto& [with, without] : pairs) {
    const std::vector<double> x = run_toy(with, {-6, 3.1}, call, model).x;
    const std::vector<double> y = run_toy(without, {-6, 3.1}, call, model).x;
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << with;
  }
}

// On normal data of deviation 0 every D is the mean: a step of the right length reaches it.
TEST(exponential_samplers, on_one_point__variance_is_that_of_the_level) {
  for (const char* sampler : {"seeds_2", "exp_heun_2_x0_sde", "seeds_3", "res_multistep_ancestral",
                              "er_sde", "euler_ancestral_cfg_pp"})
    for (const Space space : {Space::ve, Space::flow}) {
      const testing::ToyDenoiser point = [](double, double) { return 0.7; };
      testing::ToyModel model{.denoise = point, .uncond = point};
      const SampleCall call{.sigmas = {0.8, 0.5, 0.3}, .space = space};
      model.noise = [](std::span<double> z, const NoiseDraw&) { z[0] = 0; };
      const double mean = run_toy(sampler, {alpha_of(space, 0.8) * 0.7}, call, model).x[0];
      EXPECT_NEAR(mean, alpha_of(space, 0.3) * 0.7, 1e-12) << sampler << ' ' << name_of(space);
      double variance = std::pow(
          run_toy(sampler, {0.8}, call, model).x[0] - run_toy(sampler, {0.0}, call, model).x[0], 2);
      for (int64_t k = 0; k < count(sampler, call).draws; ++k) {
        model.noise = [k](std::span<double> z, const NoiseDraw& d) { z[0] = d.index == k; };
        const double x = run_toy(sampler, {alpha_of(space, 0.8) * 0.7}, call, model).x[0];
        variance += (x - mean) * (x - mean);
      }
      EXPECT_NEAR(variance, 0.3 * 0.3, 1e-12) << sampler << ' ' << name_of(space);
    }
}

// ---- draws ---------------------------------------------------------------------------------

TEST(exponential_samplers, draws__are_for_substeps) {
  SampleCall call = comfy_call();
  EXPECT_EQ(count("seeds_2", call).draws, 10);
  EXPECT_EQ(count("seeds_3", call).draws, 15);
  EXPECT_EQ(count("exp_heun_2_x0_sde", call).draws, 10);
  EXPECT_EQ(count("exp_heun_2_x0", call).draws, 0);
  call.dialect = "ebb";
  EXPECT_EQ(count("exp_heun_2_x0_sde", call).draws, 5);
}

// ---- weights -------------------------------------------------------------------------------

TEST(exponential_weights, polynomials__are_integrated_exactly) {
  const std::vector<double> nodes = {0, -0.7, -1.9, 1};
  for (const double z : {1e-6, 0.03, 0.9, 1.1, 7.0}) {
    const std::vector<double> w = exponential_weights(nodes, z);
    for (int p = 0; p < 4; ++p) {
      double sum = 0, integral = 0;
      for (size_t k = 0; k < nodes.size(); ++k) sum += w[k] * std::pow(nodes[k], p);
      const int points = 4000;  // midpoints
      for (int n = 0; n < points; ++n) {
        const double u = (n + 0.5) / points;
        integral += z * std::exp(-z * (1 - u)) * std::pow(u, p) / points;
      }
      EXPECT_NEAR(sum / z, integral / z, 2e-6) << "z " << z << " power " << p;
    }
  }
}

TEST(exponential_samplers, wrong_options__are_named) {
  const auto expect = [](const char* sampler, OptionTexts options, std::string_view part) {
    expect_error([&] { run_toy(sampler, {1.0}, {.sigmas = {1, 0}, .options = options}); }, part);
  };
  expect("seeds_2", {{"solver_type", "phi_3"}}, "unknown name 'phi_3'");
  expect("seeds_2", {{"r", "0"}}, "r must lie in (0, 1] (0)");
  expect("seeds_3", {{"r_1", "0.7"}}, "r_1 < r_2");
  expect("uni_pc", {{"order", "5"}}, "order must be 1 to 4 (5)");
  expect("uni_pc", {{"variant", "bh3"}}, "unknown name 'bh3'");
  expect("sa_solver", {{"predictor_order", "0"}}, "predictor_order must be 1 to 4 (0)");
  expect("er_sde", {{"eta", "0.5"}}, "eta must be 0 or 1");
  expect("er_sde", {{"max_stage", "4"}}, "max_stage must be 1 to 3 (4)");
  expect("gradient_estimation", {{"ge_gamma", "-1"}}, "ge_gamma must not be negative (-1)");
}

}  // namespace
}  // namespace ebb
