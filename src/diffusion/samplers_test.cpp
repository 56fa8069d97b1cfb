// Samplers: order, exact solutions and counts on data whose best denoiser is known.
#include "diffusion/samplers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "diffusion/schedules.h"
#include "support/files.h"
#include "support/source_folder.h"

namespace ebb {
namespace {

using testing::expect_error;

// ---- data ----------------------------------------------------------------------------------

constexpr double weight[] = {0.35, 0.65}, mean[] = {-1.2, 0.8}, spread[] = {0.25, 0.4};

// The best denoiser of the mixture of two normal distributions, value by value.
double mixture_mean(double x, double sigma) {
  double logs[2], means[2];
  for (int k = 0; k < 2; ++k) {
    const double v = spread[k] * spread[k] + sigma * sigma;
    logs[k] = std::log(weight[k]) - 0.5 * std::log(v) - 0.5 * std::pow(x - mean[k], 2) / v;
    means[k] = (spread[k] * spread[k] * x + sigma * sigma * mean[k]) / v;
  }
  const double p = 1 / (1 + std::exp(logs[1] - logs[0]));
  return p * means[0] + (1 - p) * means[1];
}

State mixture(const State& x, double sigma) {
  State out;
  for (const double v : x) out.push_back(mixture_mean(v, sigma));
  return out;
}

double mixture_cdf(double x, double sigma, double sign) {
  double p = 0;
  for (int k = 0; k < 2; ++k)
    p += weight[k] * 0.5 *
         std::erfc(-sign * (x - mean[k]) / std::hypot(spread[k], sigma) / std::numbers::sqrt2);
  return p;
}

// The exact flow keeps quantiles.
double transport(double x, double from, double to) {
  const double sign = mixture_cdf(x, from, 1) > 0.5 ? -1 : 1;  // the smaller tail has more digits
  const double p = mixture_cdf(x, from, sign);
  double low = -1e3, high = 1e3;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    ((mixture_cdf(middle, to, sign) < p) == (sign > 0) ? low : high) = middle;
  }
  return (low + high) / 2;
}

// One normal distribution: everything is exact.
constexpr double mu = 0.7, s2 = 0.09;
State gaussian(const State& x, double sigma) {
  State out;
  for (const double v : x) out.push_back((s2 * v + sigma * sigma * mu) / (s2 + sigma * sigma));
  return out;
}

std::vector<double> karras(int64_t steps, double low, double high) {
  return noise_levels(find_schedule("karras"),
                      {.steps = steps, .sigma_min = low, .sigma_max = high}, Precond({}));
}

// From a state that is not scaled yet.
State run(std::string_view name, State x, const SampleCall& call) {
  for (double& v : x) v /= call.sigmas[0];
  return sample(find_sampler(name), x, call);
}

// ---- known results -------------------------------------------------------------------------

TEST(samplers, six_steps_on_the_mixture__equal_published_values) {
  const std::map<std::string, State> want = {{"euler", {-0.091649426, 0.547508435}},
                                             {"heun", {-0.817086411, 0.770245517}}};
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.denoise = mixture, .sigmas = karras(6, 0.0291671582, 14.6146412293)};
    const State x = run(s->name, {-6, 3.1}, call);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], want.at(s->name)[i], 2e-8) << s->name;
  }
}

double worst_error(std::string_view name, int64_t steps) {
  std::vector<double> sigmas = karras(steps, 0.05, 14.6);
  sigmas.pop_back();
  const State start = {-17, -6, 3.1, 11};
  const State x = run(name, start, {.denoise = mixture, .sigmas = sigmas});
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(x[i] - transport(start[i], 14.6, 0.05)));
  return worst;
}

TEST(samplers, error_on_the_mixture__falls_with_their_order) {
  for (const Sampler* s : all_samplers()) {
    const double order = std::log2(worst_error(s->name, 160) / worst_error(s->name, 320));
    EXPECT_NEAR(order, static_cast<double>(s->order), 0.15) << s->name;
  }
}

TEST(samplers, gaussian__reaches_the_exact_solution_on_every_path) {
  for (const Path& path : all_paths()) {
    const Schedule& schedule = find_schedule(path.name == "linear" ? "karras" : path.name);
    SampleCall call{.denoise = gaussian,
                    .sigmas = noise_levels(schedule, {.steps = 400}, Precond({})),
                    .options = {.path = path.name}};
    const double start = call.sigmas[0];
    const State noise = {-2, 0.1, 1.5};
    const State x = sample(find_sampler("heun"), noise, call);
    for (size_t i = 0; i < 3; ++i) {
      const double exact = mu + (noise[i] * start - mu) * std::sqrt(s2 / (s2 + start * start));
      EXPECT_NEAR(x[i], exact, 2e-3) << path.name;
    }
  }
}

TEST(paths, slopes__are_derivatives) {
  for (const Path& p : all_paths())
    for (const double t : {0.01, 0.4, 0.9}) {
      const double h = 1e-6 * t;
      EXPECT_NEAR(p.sigma_slope(t), (p.sigma(t + h) - p.sigma(t - h)) / (2 * h),
                  1e-6 * p.sigma_slope(t));
      EXPECT_NEAR(p.scale_slope(t), (p.scale(t + h) - p.scale(t - h)) / (2 * h), 1e-7) << p.name;
      EXPECT_NEAR(p.time(p.sigma(t)), t, 1e-10) << p.name;
    }
}

// ---- evaluations ---------------------------------------------------------------------------

TEST(samplers, denoiser__is_asked_exactly_as_often_as_announced) {
  for (const int64_t steps : {1, 2, 6, 20}) {
    for (const Sampler* s : all_samplers()) {
      int64_t count = 0;
      const SampleCall call{.denoise =
                                [&](const State& x, double sigma) {
                                  ++count;
                                  return gaussian(x, sigma);
                                },
                            .sigmas = karras(steps, 0.01, 10)};
      sample(*s, {1.0}, call);
      EXPECT_EQ(count, evaluations_of(*s, call.sigmas)) << s->name;
      EXPECT_EQ(count, s->name == "heun" ? 2 * steps - 1 : steps) << s->name;
    }
  }
}

// The noise levels at which the reference samplers ask, for all of its trajectories.
TEST(samplers, levels_they_ask_at__equal_golden_values) {
  std::ifstream in(testing::source_folder() + "/tests/golden/diffusion.json");
  const auto all = nlohmann::json::parse(in)["edm"]["sampling"]["trajectories"];
  const std::map<std::string, std::string> preconds = {
      {"EDMPrecond", "edm"}, {"VPPrecond", "vp"}, {"VEPrecond", "ve"}, {"iDDPMPrecond", "iddpm"}};
  for (const auto& [name, t] : all.items()) {
    const auto& o = t["options"];
    const Precond precond({.precond = preconds.at(t["preconditioning"])});
    const std::string disc = o.value("discretization", "edm");
    const Schedule& schedule = find_schedule(disc == "edm" ? "karras" : disc);
    std::vector<double> asked;
    SampleCall call{.denoise =
                        [&](const State& x, double sigma) {
                          asked.push_back(sigma);
                          return gaussian(x, sigma);
                        },
                    .sigmas = noise_levels(schedule, {.steps = 6}, precond),
                    .noise = [](int64_t) { return State{1.0}; }};
    call.options.path = o.value("schedule", "linear");
    if (o.contains("S_churn"))
      call.options = {.s_churn = o["S_churn"], .s_tmin = o["S_min"], .s_tmax = o["S_max"]};
    sample(find_sampler(o.value("solver", "heun")), {1.0}, call);
    const auto want = t["denoiser_sigmas"].get<std::vector<double>>();
    ASSERT_EQ(asked.size(), want.size()) << name;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(asked[i], want[i], 1e-8 * want[i]) << name << ' ' << i;
  }
}

// ---- noise ---------------------------------------------------------------------------------

TEST(noise, image__starts_and_churns_alike_in_any_batch) {
  for (const char* name : {"euler", "heun"}) {
    const auto pictures = [&](std::vector<int64_t> images) {
      const ImageKeys keys{.seed = 5, .images = std::move(images), .elements = 12};
      const SampleCall call{.denoise = mixture,
                            .sigmas = karras(5, 0.01, 10),
                            .options = {.s_churn = 3},
                            .noise = keyed_noise(keys)};
      return sample(find_sampler(name), initial_noise(keys), call);
    };
    const State three = pictures({4, 900, 17}), one = pictures({900}), other = pictures({17, 900});
    for (size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(three[12 + i], one[i]);
      EXPECT_EQ(other[12 + i], one[i]);
      EXPECT_NE(three[i], one[i]);
    }
  }
}

TEST(noise, start_and_steps__are_independent_standard_normals) {
  const ImageKeys keys{.seed = 1, .images = {0, 1}, .elements = 20000};
  const State draws[] = {initial_noise(keys), keyed_noise(keys)(0), keyed_noise(keys)(1)};
  for (const State& a : draws)
    for (const State& b : draws) {
      double product = 0;
      for (size_t i = 0; i < a.size(); ++i) product += a[i] * b[i] / 40000;
      EXPECT_NEAR(product, &a == &b ? 1 : 0, 4 * std::sqrt(2 / 40000.0));
    }
}

// Where the denoiser answers x, nothing moves but by renewed noise.
TEST(churn, variance_that_it_adds__is_that_of_the_raised_levels) {
  const std::vector<double> sigmas = karras(8, 0.02, 40);
  SampleCall call{.denoise = [](const State& x, double) { return x; },
                  .sigmas = sigmas,
                  .options = {.s_churn = 2.4, .s_tmin = 0.1, .s_tmax = 20, .s_noise = 1.1}};
  double added = 0;
  const double gamma = 2.4 / 8;
  for (const double s : sigmas)
    if (s >= 0.1 && s <= 20) added += s * s * ((1 + gamma) * (1 + gamma) - 1) * 1.1 * 1.1;
  double seen = 0;
  for (int64_t k = 0; k < 8; ++k) {
    call.noise = [k](int64_t step) { return State{step == k ? 1.0 : 0.0}; };
    seen += std::pow(sample(find_sampler("heun"), {0.0}, call)[0], 2);
  }
  EXPECT_NEAR(seen, added, 1e-9 * added);
}

// Everything is affine in the draws, so mean and variance of the results are exact.
TEST(churn, gaussian__keeps_its_moments) {
  const int64_t steps = 200;
  SampleCall call{.denoise = gaussian,
                  .sigmas = karras(steps, 0.002, 80),
                  .options = {.s_churn = 60, .s_tmin = 0.01}};
  call.noise = [](int64_t) { return State{0.0}; };
  const double zero = sample(find_sampler("heun"), {0.0}, call)[0];
  double variance = std::pow(sample(find_sampler("heun"), {1.0}, call)[0] - zero, 2);
  const double kept = variance;
  for (int64_t k = 0; k < steps; ++k) {
    call.noise = [k](int64_t step) { return State{step == k ? 1.0 : 0.0}; };
    variance += std::pow(sample(find_sampler("heun"), {0.0}, call)[0] - zero, 2);
  }
  EXPECT_NEAR(zero, mu, 1e-3);
  EXPECT_NEAR(variance, s2, 0.01 * s2);
  EXPECT_LT(kept, 0.5 * s2);  // much of the start is forgotten
}

TEST(churn, amount__is_limited_to_sqrt_2) {
  std::vector<double> asked;
  const SampleCall call{.denoise =
                            [&](const State& x, double sigma) {
                              asked.push_back(sigma);
                              return x;
                            },
                        .sigmas = {4, 1, 0},
                        .options = {.s_churn = 1000},
                        .noise = [](int64_t) { return State{0.0}; }};
  sample(find_sampler("euler"), {0.0}, call);
  EXPECT_NEAR(asked.at(0), 4 * std::numbers::sqrt2, 1e-12);
}

// ---- progress and errors -------------------------------------------------------------------

TEST(samplers, progress__sees_every_step_and_can_stop) {
  std::vector<double> reached;
  SampleCall call{.denoise = gaussian, .sigmas = {4, 1, 0.5, 0}};
  call.progress = [&](const Progress& p) {
    EXPECT_EQ(p.steps, 3);
    EXPECT_EQ(p.step, static_cast<int64_t>(reached.size()) + 1);
    EXPECT_EQ(p.denoised.size(), p.x.size());
    reached.push_back(p.sigma);
    return true;
  };
  sample(find_sampler("heun"), {1.0}, call);
  EXPECT_EQ(reached, (std::vector<double>{1, 0.5, 0}));
  call.progress = [](const Progress& p) { return p.step < 2; };
  EXPECT_THROW(sample(find_sampler("heun"), {1.0}, call), Cancelled);
}

TEST(samplers, wrong_values__are_named) {
  expect_error([] { find_sampler("huen"); }, "unknown name 'huen' (did you mean 'heun'?)");
  expect_error([] { find_path("lineal"); }, "unknown name 'lineal' (did you mean 'linear'?)");
  const auto expect = [](const SampleCall& call, std::string_view part) {
    expect_error([&] { sample(find_sampler("euler"), {1.0}, call); }, part);
  };
  expect({.denoise = gaussian, .sigmas = {1}}, "needs two noise levels or more (1)");
  expect({.denoise = gaussian, .sigmas = {1, 2, 0}}, "must fall and not be negative (1, then 2)");
  expect({.denoise = gaussian, .sigmas = {1, 0}, .options = {.s_churn = 1}},
         "s_churn (1) needs a source of noise");
  expect({.denoise = gaussian, .sigmas = {1, 0}, .options = {.s_tmin = 2, .s_tmax = 1}},
         "s_tmin (2) must not be above s_tmax (1)");
  expect({.denoise = gaussian, .sigmas = {1, 0}, .options = {.path = "v"}}, "did you mean");
  expect({.denoise = [](const State&, double) { return State{std::nan("")}; }, .sigmas = {2, 1, 0}},
         "the state is not finite after step 1 of 2");
}

}  // namespace
}  // namespace ebb
