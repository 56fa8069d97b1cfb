// DPM-Solver and DPM-Solver++: identities, orders, refusals. diffusers_golden_test has
// trajectories.
#include "diffusion/solver/dpm_solver.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/mixture_samples.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::expect_same_samples;
using testing::karras;
using testing::run_toy;

TEST(dpm_solver, identities__hold) {
  for (const int64_t steps : {6, 20}) {
    const std::vector<double> s = karras(steps, 0.03, 14.6);
    expect_same_samples("dpm_solver_multistep", {s}, "dpmpp_2m", {s});
    for (const char* type : {"dpmsolver", "dpmsolver++"})
      for (const char* sampler : {"dpm_solver_multistep", "dpm_solver_singlestep"})
        expect_same_samples(sampler, {s, {{"solver_order", "1"}, {"algorithm_type", type}}},
                            "euler", {s});
  }
  // Two levels a group, so the second is at a share r of the way, and no step goes to 0.
  expect_same_samples(
      "dpm_solver_singlestep",
      {{8, 4, 2, 1, 0.5}, {{"lower_order_final", "false"}, {"solver_type", "midpoint"}}},
      "dpmpp_sde", {{8, 2, 0.5}, {{"eta", "0"}, {"r", "0.5"}}});
}

// In lambda, D does not know whether its state is x or (1 - sigma) x.
TEST(dpm_solver, on_flow__is_that_on_x_scaled) {
  const std::vector<double> s = karras(9, 0.03, 14.6);
  std::vector<double> flow;
  for (const double v : s) flow.push_back(v / (1 + v));
  for (const char* sampler : {"dpmpp_2m_flow", "dpm_solver_multistep_3", "dpm_solver_singlestep_3",
                              "cosine_dpmpp_2m_sde"}) {
    const std::vector<double> want = run_toy(sampler, {-6, 3.1}, {s}).x;
    const std::vector<double> got =
        run_toy(sampler, {-6 / 15.6, 3.1 / 15.6}, {.sigmas = flow, .space = Space::flow},
                {.denoise = testing::on_flow(testing::mixture_denoiser())})
            .x;
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i], want[i], 1e-11) << sampler;
  }
}

// How often the worst error halves when steps are halved. Whole groups of three steps, no last one
// of lower order.
double order_of(const std::string& sampler, OptionTexts options) {
  options.push_back({"lower_order_final", "false"});
  double errors[2];
  for (const int64_t steps : {159, 318}) {
    const std::vector<double> from = {-17, -6, 3.1, 11};
    const std::vector<double> x =
        run_toy(sampler, from, {karras(steps + 1, 0.05, 14.6, false), options}).x;
    double& worst = errors[steps / 318] = 0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::abs(x[i] - testing::Mixture{}.transport(from[i], 14.6, 0.05)));
  }
  return std::log2(errors[0] / errors[1]);
}

TEST(dpm_solver, order__is_the_requested_one_but_for_the_known_error) {
  for (const std::string sampler : {"dpm_solver_multistep", "dpm_solver_singlestep"})
    for (const char* type : {"dpmsolver", "dpmsolver++"})
      for (const char* kind : {"midpoint", "heun"})
        for (const int order : {1, 2, 3})
          for (const bool exact : {false, true}) {
            if (exact && (order != 3 || sampler == "dpm_solver_singlestep")) continue;
            const bool slip = order == 3 && !exact && sampler == "dpm_solver_multistep";
            const double got = order_of(sampler, {{"algorithm_type", type},
                                                  {"solver_type", kind},
                                                  {"solver_order", std::to_string(order)},
                                                  {"exact_third", exact ? "true" : "false"}});
            EXPECT_NEAR(got, slip ? 2 : order, 0.15) << sampler << type << kind << order;
          }
}

TEST(dpm_solver, impossible_options__are_refused) {
  const auto expect = [](std::string_view sampler, const OptionTexts& options,
                         std::string_view part) {
    testing::expect_error([&] { run_toy(sampler, {1.0}, {{1, 0}, options}); }, part);
  };
  expect("dpm_solver_multistep", {{"solver_order", "4"}}, "must be 1 to 3 (4)");
  expect("dpm_solver_multistep", {{"algorithm_type", "dpm_solver++"}},
         "did you mean 'dpmsolver++'?");
  expect("dpm_solver_multistep", {{"algorithm_type", "sde-dpmsolver"}, {"solver_order", "3"}},
         "must be 1 to 2 (3)");
  expect("dpm_solver_singlestep", {{"algorithm_type", "sde-dpmsolver"}},
         "is for dpm_solver_multistep");
  expect("dpm_solver_singlestep", {{"solver_type", "hein"}}, "did you mean 'heun'?");
  expect("dpm_solver_multistep", {{"exact_third", "true"}}, "is of solver_order 3, not 2");
  expect("dpm_solver_singlestep", {{"solver_order", "3"}, {"exact_third", "true"}}, "is exact");
  expect("dpm_solver_multistep", {{"s_noise", "0.5"}}, "is of the sde algorithms");
}

}  // namespace
}  // namespace ebb
