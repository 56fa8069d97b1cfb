// Samplers that remember slopes: weights, known results, identities, order.
#include "diffusion/solver/multistep.h"

#include <gtest/gtest.h>

#include <map>

#include "support/files.h"
#include "support/mixture_samples.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::karras;
using testing::run_toy;

// Of a polynomial below the number of slopes the integral is exact.
TEST(polynomial_weights, of_four_values__integrate_cubics) {
  const std::vector<double> places = {5, 7, 8.5, 12};
  const auto slope = [](double s) { return 2 - s + 0.5 * s * s - 0.1 * s * s * s; };
  const auto sum = [](double s) {
    return 2 * s - s * s / 2 + s * s * s / 6 - 0.025 * s * s * s * s;
  };
  std::vector<double> nodes;
  for (const double p : places) nodes.push_back(p - 5);
  const std::vector<double> w = polynomial_weights(nodes, power_moments(-3.5, 4));
  double got = 0;
  for (size_t k = 0; k < 4; ++k) got += w[k] * slope(places[k]);
  EXPECT_NEAR(got, sum(1.5) - sum(5), 1e-12);
}

TEST(polynomial_weights, of_equal_steps__are_those_of_adams_and_bashforth) {
  for (int64_t order = 1; order <= 4; ++order) {
    const std::vector<double> nodes = nodes_before({9, 7, 5, 3}, 3, order);
    const std::vector<double> w = polynomial_weights(nodes, power_moments(-2, nodes.size()));
    for (size_t k = 0; k < w.size(); ++k)
      EXPECT_NEAR(w[k], -2 * adams_bashforth(order)[k], 1e-13) << order;
  }
}

struct Case {
  std::string sampler;
  OptionTexts options;
  Space space;
  std::vector<double> want;
  std::string dialect = "ebb";
};

using testing::sd_levels;

TEST(multistep_samplers, six_steps_on_the_mixture__equal_published_values) {
  const std::vector<Case> cases = {
      {"ipndm", {}, Space::ve, {-0.474555253, 0.697574357}},
      {"ipndm", {}, Space::ve, {-0.460214937, 0.714983413}, "sdcpp"},
      {"ipndm_v", {}, Space::ve, {-0.263579860, 0.683321262}},
      {"ipndm_v", {{"max_order", "2"}}, Space::ve, {-0.125748728, 0.590841774}},
      {"ipndm_v", {{"max_order", "3"}}, Space::ve, {-0.258144217, 0.679588068}},
      {"deis", {}, Space::ve, {-0.299854772, 0.682972979}},
      {"deis", {{"max_order", "4"}}, Space::ve, {-0.332299901, 0.712395752}},
      {"deis", {{"max_order", "2"}}, Space::ve, {-0.192253969, 0.630714490}},
  };
  for (const Case& c : cases) {
    const SampleCall call{.sigmas = sd_levels, .options = c.options, .dialect = c.dialect};
    const std::vector<double> x = run_toy(c.sampler, {-6, 3.1}, call).x;
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], c.want[i], 2e-8) << c.sampler;
  }
}

void expect_equal(const std::vector<std::string>& names, const std::vector<double>& sigmas,
                  const OptionTexts& options = {}) {
  testing::expect_same_samples(names[0], {sigmas, options}, names[1], {sigmas});
}

TEST(multistep_samplers, identities__hold) {
  for (const int64_t steps : {6, 20}) {
    const std::vector<double> sigmas = karras(steps, 0.03, 14.6);
    expect_equal({"ipndm_v_exact", "deis_rhoab"}, sigmas);
    expect_equal({"ipndm", "euler"}, sigmas, {{"max_order", "1"}});
    expect_equal({"deis", "euler"}, sigmas, {{"max_order", "1"}});
  }
  // On equal steps every weight is that of Adams and Bashforth.
  expect_equal({"ipndm", "ipndm_v_exact"}, {8, 7, 6, 5, 4, 3, 2, 1, 0});
}

// From a start that is exact: -log2 of how the worst error falls when steps are halved.
double multistep_order(const std::string& sampler, const OptionTexts& options) {
  double errors[2];
  for (const int64_t steps : {160, 320}) {
    const std::vector<double> start = {-17, -6, 3.1, 11};
    const std::vector<double> x =
        run_toy(sampler, start, {karras(steps, 0.05, 14.6, false), options}).x;
    double& worst = errors[steps / 320] = 0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::abs(x[i] - testing::Mixture{}.transport(start[i], 14.6, 0.05)));
  }
  return std::log2(errors[0] / errors[1]);
}

// Starting up with an Euler step holds four exact slopes back: 3.5 instead of 4.
TEST(multistep_samplers, order__is_that_of_their_weights) {
  const std::map<std::string, std::vector<double>> want = {
      {"ipndm", {1.04, 1.99, 1.72, 2.01}},         {"ipndm_v", {1.04, 1.98, 2.95}},
      {"ipndm_v_exact", {1.04, 1.98, 2.94, 3.52}}, {"deis", {1.04, 1.98, 2.94, 2.73}},
      {"deis_log_rho", {1.04, 1.99, 2.94}},
  };
  for (const auto& [sampler, orders] : want)
    for (size_t k = 0; k < orders.size(); ++k)
      EXPECT_NEAR(multistep_order(sampler, {{"max_order", std::to_string(k + 1)}}), orders[k], 0.05)
          << sampler << ' ' << k + 1;
}

TEST(multistep_samplers, options_out_of_range__are_refused) {
  const auto expect = [](std::string_view sampler, const OptionTexts& options,
                         std::string_view part) {
    testing::expect_error([&] { run_toy(sampler, {1.0}, {{1, 0}, options}); }, part);
  };
  expect("ipndm", {{"max_order", "5"}}, "max_order must be 1 to 4 (5)");
  expect("ipndm_v", {{"max_order", "0"}}, "max_order must be 1 to 4 (0)");
  expect("deis_log_rho", {{"max_order", "4"}}, "max_order must be 1 to 3 (4)");
  expect("deis", {{"deis_mode", "rho"}}, "did you mean");
}

}  // namespace
}  // namespace ebb
