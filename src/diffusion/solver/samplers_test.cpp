// Samplers: known results, exact solutions, order, counts, on data whose best denoiser is known.
#include <gtest/gtest.h>

#include <map>

#include "diffusion/solver/path.h"
#include "diffusion/solver/sampler.h"
#include "support/files.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::karras;
using testing::run_toy;

using testing::sd_levels;

TEST(samplers, six_steps_on_the_mixture__equal_published_values) {
  const std::map<std::string, std::vector<double>> want = {
      {"euler", {-0.091649426, 0.547508435}},          {"heun", {-0.817086411, 0.770245517}},
      {"euler_ancestral", {1.241533962, 1.255177274}}, {"dpmpp_2m", {-0.357436529, 0.778519082}},
      {"dpmpp_sde", {0.948192458, 0.956600002}},
  };
  for (const auto& [name, values] : want) {
    const std::vector<double> x = run_toy(name, {-6, 3.1}, {.sigmas = sd_levels}).x;
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], values[i], 2e-8) << name;
  }
}

TEST(samplers, gaussian__reaches_the_exact_solution_on_every_path) {
  for (const Path& path : all_paths()) {
    const SampleCall call{.sigmas = karras(400, 0.002, 80), .options = {{"path", path.name}}};
    const std::vector<double> start = {-160, 8, 120};
    const std::vector<double> x =
        run_toy("heun", start, call, {.denoise = testing::normal_denoiser(0.7, 0.3)}).x;
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(x[i], 0.7 + (start[i] - 0.7) * 0.3 / std::hypot(0.3, 80), 2e-3) << path.name;
  }
}

// Of six steps to 0, by name.
struct Cost {
  int64_t evaluations, draws;
};
const std::map<std::string, Cost> costs = {
    {"ddim", {6, 0}},
    {"ddim_cfg_pp", {6, 0}},
    {"ddim_trailing", {6, 0}},
    {"ddpm", {6, 5}},
    {"deis", {6, 0}},
    {"deis_log_rho", {6, 0}},
    {"dpm_2", {11, 0}},
    {"dpm_2_ancestral", {11, 5}},
    {"dpm_fast", {6, 0}},
    {"dpm_solver_multistep", {6, 0}},
    {"dpm_solver_singlestep", {6, 0}},
    {"cosine_dpmpp_2m_sde", {6, 5}},
    {"dpmpp_2m", {6, 0}},
    {"dpmpp_2m_cfg_pp", {6, 0}},
    {"dpmpp_2m_sde", {6, 5}},
    {"dpmpp_2m_v2", {6, 0}},
    {"dpmpp_2s_ancestral", {11, 5}},
    {"dpmpp_2s_ancestral_cfg_pp", {11, 5}},
    {"dpmpp_3m_sde", {6, 5}},
    {"dpmpp_3m_sde_exact", {6, 5}},
    {"dpmpp_sde", {11, 10}},
    {"er_sde", {6, 5}},
    {"euler", {6, 0}},
    {"euler_ancestral", {6, 5}},
    {"euler_ancestral_cfg_pp", {6, 5}},
    {"euler_cfg_pp", {6, 0}},
    {"exp_heun_2_x0", {11, 0}},
    {"exp_heun_2_x0_sde", {11, 5}},
    {"flow_match_euler_stochastic", {6, 5}},
    {"gradient_estimation", {6, 0}},
    {"gradient_estimation_cfg_pp", {6, 0}},
    {"heun", {11, 0}},
    {"heunpp2", {15, 0}},
    {"heunpp2_exact", {15, 0}},
    {"ipndm", {6, 0}},
    {"ipndm_v", {6, 0}},
    {"lcm", {6, 5}},
    {"lms", {6, 0}},
    {"plms", {7, 0}},
    {"pndm", {15, 0}},
    {"res_2s", {11, 0}},
    {"res_multistep", {6, 0}},
    {"res_multistep_ancestral", {6, 5}},
    {"res_multistep_cfg_pp", {6, 0}},
    {"restart", {11, 0}},
    {"sa_solver", {6, 5}},
    {"sa_solver_pece", {11, 5}},
    {"seeds_2", {11, 10}},
    {"seeds_3", {16, 15}},
    {"tcd", {6, 5}},
    {"uni_pc", {6, 0}},
};

TEST(samplers, evaluations_and_draws__are_those_of_the_table) {
  for (const auto& [name, cost] : costs) {
    const testing::ToyRun run = run_toy(name, {1.0}, {.sigmas = sd_levels});
    EXPECT_EQ(run.evaluations, cost.evaluations) << name;
    EXPECT_EQ(run.draws, cost.draws) << name;
  }
  for (const Sampler* s : all_samplers())
    EXPECT_TRUE(s->adaptive || costs.contains(s->name)) << s->name << " is not in the table";
}

TEST(samplers, evaluations_and_draws__are_as_counted) {
  for (const int64_t steps : {1, 2, 3, 4, 6, 20, 40})
    for (const Sampler* s : all_samplers()) {
      if (s->adaptive) continue;
      const SampleCall call{.sigmas = karras(steps, 0.01, 10)};
      const SampleCounts counts = count(s->name, call);
      const testing::ToyRun run = run_toy(s->name, {1.0}, call);
      EXPECT_EQ(run.evaluations, counts.evaluations) << s->name;
      EXPECT_EQ(run.draws, counts.draws) << s->name;
    }
}

TEST(samplers, dialects__draw_as_their_programs) {
  const auto draws = [](std::string_view sampler, std::string dialect) {
    return count(sampler, {.sigmas = sd_levels, .dialect = std::move(dialect)}).draws;
  };
  EXPECT_EQ(draws("heun", "ebb"), 0);
  EXPECT_EQ(draws("heun", "kdiff"), 6);
  EXPECT_EQ(draws("euler_ancestral", "comfy"), 5);
  EXPECT_EQ(draws("euler_ancestral", "diffusers"), 6);
}

TEST(samplers, few_or_repeated_levels__are_finite) {
  for (const Sampler* s : all_samplers())
    for (const std::vector<double>& sigmas :
         {std::vector<double>{2.0}, {2.0, 0}, {2.0, 1}, {2.0, 2, 1, 1, 0, 0}, {0.0}}) {
      const std::vector<double> x = run_toy(s->name, {0.3}, {.sigmas = sigmas}).x;
      EXPECT_TRUE(std::isfinite(x[0])) << s->name;
      if (sigmas.size() == 1) {
        EXPECT_EQ(x[0], 0.3) << s->name;
      }
    }
}

// ---- renewed noise -------------------------------------------------------------------------

// If the denoiser returns x, only renewed noise changes the state.
TEST(churn, variance_that_it_adds__is_that_of_the_raised_levels) {
  const std::vector<double> sigmas = karras(8, 0.02, 40);
  const SampleCall call{
      .sigmas = sigmas,
      .options = {{"s_churn", "2.4"}, {"s_tmin", "0.1"}, {"s_tmax", "20"}, {"s_noise", "1.1"}}};
  double added = 0;
  const double gamma = 2.4 / 8;
  for (const double s : sigmas)
    if (s >= 0.1 && s <= 20) added += s * s * ((1 + gamma) * (1 + gamma) - 1) * 1.1 * 1.1;
  testing::ToyModel model{.denoise = [](double x, double) { return x; }};
  double seen = 0;
  for (int64_t k = 0; k < 8; ++k) {
    model.noise = [k](std::span<double> z, const NoiseDraw& d) { z[0] = d.index == k ? 1 : 0; };
    seen += std::pow(run_toy("heun", {0.0}, call, model).x[0], 2);
  }
  EXPECT_NEAR(seen, added, 1e-9 * added);
}

TEST(churn, amount__is_limited_to_sqrt_2) {
  const SampleCall call{.sigmas = {4, 1, 0}, .options = {{"s_churn", "1000"}}};
  EXPECT_NEAR(run_toy("euler", {0.0}, call).asked.at(0), 4 * std::numbers::sqrt2, 1e-12);
}

// ---- progress and errors -------------------------------------------------------------------

TEST(samplers, progress__sees_every_step_and_can_stop) {
  for (const Sampler* s : all_samplers()) {
    if (s->adaptive) continue;
    int64_t steps = 0;
    SampleCall call{.sigmas = {4, 1, 0.5, 0}};
    call.progress = [&](const Progress& p) {
      EXPECT_EQ(p.step, ++steps) << s->name;
      return true;
    };
    run_toy(s->name, {1.0}, call);
    EXPECT_GE(steps, 1) << s->name;
    call.progress = [](const Progress& p) { return p.step < 1; };
    EXPECT_THROW(run_toy(s->name, {1.0}, call), Cancelled) << s->name;
  }
}

TEST(samplers, wrong_values__are_named) {
  expect_error([] { find_sampler("huen"); }, "unknown name 'huen' (did you mean 'heun'?)");
  expect_error([] { find_sampler("Huen Karras"); }, "(did you mean 'heun karras'?)");
  expect_error([] { find_sampler("Euler a karas"); }, "(did you mean 'Euler a karras'?)");
  expect_error([] { find_path("lineal"); }, "unknown name 'lineal' (did you mean 'linear'?)");
  const auto expect = [](const SampleCall& call, std::string_view part) {
    expect_error([&] { run_toy("euler", {1.0}, call); }, part);
  };
  expect({.sigmas = {}}, "needs a noise level");
  expect({.sigmas = {1, 2, 0}}, "must fall (sigmas[1] is 2, after 1)");
  expect({.sigmas = {1, 0}, .options = {{"s_tmin", "2"}, {"s_tmax", "1"}}},
         "s_tmin (2) must not be above s_tmax (1)");
  expect({.sigmas = {1, 0}, .options = {{"path", "v"}}}, "did you mean");
  expect({.sigmas = {1, 0}, .options = {{"eta", "1"}}}, "eta");
  expect({.sigmas = {1, 0}, .dialect = "comfi"}, "did you mean 'comfy'?");
  expect({.sigmas = {14, 0}, .space = Space::flow}, "flow model end at 1 (sigmas[0] is 14)");
  expect_error(
      [] {
        run_toy("euler", {1.0}, {.sigmas = {2, 1, 0}},
                {.denoise = [](double, double) { return std::nan(""); }});
      },
      "not finite");
}

// ---- names ---------------------------------------------------------------------------------

TEST(sampler_facts, of_another_name__are_its_own) {
  const Sampler& ipndm_v = *find_sampler("ipndm_v").sampler;
  const std::vector<SamplerFacts> all = all_facts_of(ipndm_v);
  ASSERT_EQ(all.size(), 1 + ipndm_v.aliases.size());
  EXPECT_EQ(all[0].name, "ipndm_v");
  EXPECT_EQ(all[0].order, 0);
  EXPECT_EQ(all[1].name, "ipndm_v_exact");
  EXPECT_EQ(all[1].order, 4);
  EXPECT_NE(all[1].help, all[0].help);
  const Sampler& seeds = *find_sampler("seeds_2").sampler;
  EXPECT_EQ(facts_of(seeds).kind, SamplerKind::sde);
  EXPECT_EQ(facts_of(seeds, seeds.aliases.at(0)).kind, SamplerKind::ode);
}

// ---- latents -------------------------------------------------------------------------------

// Sums that nobody reads would hold every vector of the run.
TEST(samplers, vectors_held__do_not_grow_with_steps) {
  for (const Sampler* s : all_samplers())
    for (const SamplerFacts& facts : all_facts_of(*s)) {
      const auto held = [&](int64_t steps) {
        return count(facts.name, {.sigmas = karras(steps, 0.03, 14.6)}).vectors;
      };
      EXPECT_EQ(held(60), held(30)) << facts.name;
      EXPECT_LE(held(60), 16) << facts.name;
    }
}

TEST(latent, sums__hold_every_vector_once) {
  HostLatents<double> latents(1, {}, {});
  const Latent a = latents.put(std::vector<double>{2}), b = latents.put(std::vector<double>{5});
  const Latent c = 3 * (a + b) - a / 2 - b * 3;
  ASSERT_EQ(c.terms().size(), 1u);
  EXPECT_EQ(latents.values(c), std::vector<double>{5});
  EXPECT_EQ(latents.values(c - c), std::vector<double>{0});
  EXPECT_EQ(c.alone(), nullptr);
  EXPECT_NE((c / 2.5).alone(), nullptr);
}

}  // namespace
}  // namespace ebb
