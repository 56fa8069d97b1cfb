// Denoisers: compiled preconditioning and guidance against plain arithmetic in double.
#include "diffusion/denoiser.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

Context cpu() { return open_context("cpu", {.threads = 2}); }

Value per_image(Value v) { return ops::cast(ops::reshape(v, {v.shape()[0], 1, 1, 1}), DType::f32); }

// Predicts 0.3 x + 0.01 c_noise + 0.1 class, and something else for variances.
nn::Network simple(bool learn_sigma = false) {
  return [learn_sigma](Graph& g, const nn::NetworkInputs& in) {
    const Value zero = ops::constant(g, 0, {in.x.shape()[0], 1, 1, 1});
    const Value c = in.classes ? per_image(in.classes) : zero;
    const Value f = ops::map({in.x, per_image(in.noise), c},
                             [](auto v) { return v[0] * 0.3 + v[1] * 0.01 + v[2] * 0.1; });
    return learn_sigma ? ops::concat({f, f}, 3) : f;
  };
}

State noise(size_t count) {
  std::vector<float> v(count);
  fill_normal({.seed = 3}, 0, v);
  return State(v.begin(), v.end());
}

// One element of D by the definition.
double expected(const Precond& p, double x, double sigma, double c) {
  const PrecondNumbers k = p.at(sigma);
  return k.skip * x + k.out * (0.3 * k.in * x + 0.01 * k.noise + 0.1 * c);
}

TEST(denoiser, every_preconditioning__equals_its_definition) {
  for (const char* name : {"edm", "vp", "ve", "iddpm", "eps", "v", "x0", "flow"})
    for (const bool learned : {false, true}) {
      const DiffusionConfig config{.precond = name};
      DiffusionConfig c = config;
      c.learn_sigma = learned && config.discrete();
      Denoiser d(c, simple(c.learn_sigma), {.batch = 2, .image = {3, 5, 2}}, cpu());
      for (const double sigma : {0.05, 0.7, 40.0}) {
        const State x = noise(60);
        const State y = d(x, sigma);
        for (size_t i = 0; i < 60; ++i) {
          const double want = expected(d.precond(), x[i], sigma, 0);
          EXPECT_NEAR(y[i], want, 2e-6 * (std::abs(want) + std::abs(x[i])) + 1e-6 * sigma) << name;
        }
      }
      EXPECT_EQ(d.evaluations(), 3);
    }
}

// A network that predicts 0 is exact for centred normal data of standard deviation sigma_data under
// EDM's preconditioning, by construction.
TEST(denoiser, edm__of_a_silent_network_is_exact_for_normal_data) {
  const nn::Network silent = [](Graph&, const nn::NetworkInputs& in) {
    return ops::map({in.x}, [](auto v) { return v[0] * 0.0 + 0.0; });
  };
  Denoiser d({.sigma_data = 0.3}, silent, {.image = {1, 1, 1}}, cpu());
  EXPECT_NEAR(d({2.0}, 0.4)[0], 2.0 * 0.09 / 0.25, 1e-6);
}

TEST(denoiser, noise_scale__is_the_models) {
  const Precond quarter(DiffusionConfig{}), whole(DiffusionConfig{.noise_scale = 1});
  EXPECT_NEAR(quarter.at(7).noise, std::log(7) / 4, 1e-12);
  EXPECT_NEAR(whole.at(7).noise, std::log(7), 1e-12);
}

TEST(denoiser, integer_timesteps__reach_the_network) {
  const DiffusionConfig config{.precond = "eps"};
  Denoiser d(config, simple(), {.image = {1, 1, 1}, .integer_timesteps = true}, cpu());
  for (const double sigma : {0.7, 3.3}) {
    const PrecondNumbers c = d.precond().at(sigma, true);
    EXPECT_EQ(c.noise, std::round(c.noise));
    EXPECT_NE(c.noise, d.precond().at(sigma).noise);
    EXPECT_NEAR(d({2.0}, sigma)[0], 2 + c.out * (0.3 * c.in * 2 + 0.01 * c.noise), 1e-4);
  }
}

TEST(denoiser, guidance__goes_from_none_through_the_class) {
  const DenoiserOptions options{.batch = 2, .image = {2, 2, 1}, .classes = 10, .guided = true};
  Denoiser d({}, simple(), options, cpu());
  d.classes({7, 2});
  const State x = noise(8);
  for (const double w : {1.0, 0.0, 3.5}) {
    d.guidance(w);
    const State y = d(x, 0.7);
    for (size_t i = 0; i < 8; ++i) {
      const double none = expected(d.precond(), x[i], 0.7, -1);
      const double classed = expected(d.precond(), x[i], 0.7, i < 4 ? 7 : 2);
      EXPECT_NEAR(y[i], none + w * (classed - none), 1e-5) << w;
    }
  }
}

// Linear rules in the plan, others on the host, against the rules in memory.
TEST(denoiser, guidance_rules__work_as_in_memory) {
  const SampleCall call{.sigmas = {9, 4, 2, 1, 0.4, 0}};
  const DenoiserOptions options{.batch = 2,
                                .image = {2, 3, 2},
                                .classes = 10,
                                .guided = true,
                                .vectors = count("heun", call).vectors + 1};
  const State start = noise(24);
  for (const char* text : {"cfg:scale=3", "interval:sigma_lo=0.5,sigma_hi=5;cfg:scale=3",
                           "cfg:scale=3;cfg_rescale", "apg:scale=4"}) {
    Denoiser d({.sigma_data = 1}, simple(), options, cpu());
    d.classes({7, 2});
    const GuidanceCall guidance{.shape = {2, 2, 3, 2}, .sigmas = call.sigmas};
    d.guide(parse_rules(text), guidance);
    GuidanceCall host = guidance;
    host.raw = [&](double sigma) {
      return OutputForm{d.precond().at(sigma).skip, d.precond().at(sigma).out};
    };
    const auto predict = [&](std::span<const double> x, double sigma,
                             std::span<const Branch> branches,
                             std::span<const std::span<double>> answers) {
      for (size_t k = 0; k < branches.size(); ++k)
        for (size_t i = 0; i < x.size(); ++i) {
          const double c = branches[k] == Branch::uncond ? -1 : i < 12 ? 7 : 2;
          answers[k][i] = expected(d.precond(), x[i], sigma, c);
        }
    };
    HostLatents<double> memory(24, guided<double>(predict, parse_rules(text), host), {});
    const State ours = d.values(sample("heun", d, 9 * d.put(start), call));
    const State want = memory.values(sample("heun", memory, 9 * memory.put(start), call));
    for (size_t i = 0; i < 24; ++i)
      EXPECT_NEAR(ours[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << text;
  }
}

// Two runs of half the batch, and one of the whole.
TEST(denoiser, image__does_not_depend_on_its_batch) {
  const nn::Network network = [](Graph& g, const nn::NetworkInputs& in) {
    return ops::conv2d(in.x, g.source(Source::Kind::param, "w", {DType::f32, {2, 3, 3, 2}}), {},
                       {.pad = {1, 1, 1, 1}});
  };
  Tensor w(DType::f32, {2, 3, 3, 2});
  fill_normal({.seed = 9}, 0, w.span<float>());
  Denoiser two({}, network, {.batch = 2, .image = {4, 4, 2}}, cpu());
  Denoiser one({}, network, {.batch = 1, .image = {4, 4, 2}}, cpu());
  two.bind("w", w);
  one.bind("w", w);
  const State x = noise(64), y = two(x, 0.5);
  const State second = one(State(x.begin() + 32, x.end()), 0.5);
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(y[32 + i], second[i], 1e-6);
  Denoiser rounded({}, network, {.batch = 2, .image = {4, 4, 2}, .dtype = DType::bf16}, cpu());
  rounded.bind("w", w);
  const State z = rounded(x, 0.5);
  double error = 0, norm = 0;
  for (size_t i = 0; i < 64; ++i) {
    error += std::pow(z[i] - y[i], 2);
    norm += y[i] * y[i];
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-2);
  EXPECT_GT(error, 0);
}

// A sampler's vectors in the plan against vectors in memory, for every sampler there is.
TEST(denoiser, samplers__work_in_its_plan_as_in_memory) {
  const DiffusionConfig config{.precond = "edm", .sigma_data = 1};
  const std::vector<double> sigmas = {9, 4, 2, 1, 0.4, 0.1, 0};
  const State start = noise(12);
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.sigmas = sigmas};
    Denoiser d(config, simple(),
               {.image = {2, 3, 2},
                .classes = 4,
                .guided = s->needs_uncond,
                .vectors = count(s->name, call).vectors},
               cpu());
    d.classes({2});
    const auto draws = [](std::span<double> z, const NoiseDraw& draw) {
      for (size_t i = 0; i < z.size(); ++i)
        z[i] = std::sin(static_cast<double>(i) + 7.0 * static_cast<double>(draw.index));
    };
    d.noise_from(draws);
    HostLatents<double> memory(
        start.size(),
        [&](std::span<const double> x, double sigma, std::span<double> y, std::span<double> u) {
          for (size_t i = 0; i < y.size(); ++i) y[i] = expected(d.precond(), x[i], sigma, 2);
          for (size_t i = 0; i < u.size(); ++i) u[i] = expected(d.precond(), x[i], sigma, -1);
        },
        draws);
    const State ours = d.values(sample(s->name, d, 9 * d.put(start), call));
    const State want = memory.values(sample(s->name, memory, 9 * memory.put(start), call));
    for (size_t i = 0; i < start.size(); ++i)
      EXPECT_NEAR(ours[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << s->name;
    EXPECT_EQ(d.evaluations(), s->adaptive ? d.evaluations() : count(s->name, call).evaluations);
  }
}

// Noise drawn in the plan against the same numbers made outside, and a batch against its images
// alone, for every sampler that draws.
TEST(denoiser, noise_in_its_plan__is_that_of_the_keys_and_of_every_image_alone) {
  const SampleCall call{.sigmas = {9, 4, 2, 1, 0.4, 0.1, 0}};
  const State start = noise(36);
  int tried = 0;
  for (const Sampler* s : all_samplers()) {
    const SampleCounts counts = count(s->name, call);
    if (counts.draws == 0) continue;
    ++tried;
    const auto run = [&](const std::vector<int64_t>& images, bool in_plan) {
      const auto batch = static_cast<int64_t>(images.size());
      Denoiser d({.sigma_data = 1}, simple(),
                 {.batch = batch,
                  .image = {2, 3, 2},
                  .classes = 4,
                  .guided = s->needs_uncond,
                  .vectors = counts.vectors,
                  .draws = in_plan},
                 cpu());
      d.classes(std::vector<int64_t>(images.size(), 2));
      if (in_plan)
        d.draw_by(5, images);
      else
        d.noise_from(keyed_noise({.seed = 5, .images = images, .elements = 12}));
      State x;
      for (const int64_t i : images) x.insert(x.end(), &start[i * 12], &start[i * 12] + 12);
      return d.values(sample(s->name, d, 9 * d.put(x), call));
    };
    const State together = run({0, 1, 2}, true), outside = run({0, 1, 2}, false);
    for (size_t i = 0; i < together.size(); ++i)
      EXPECT_NEAR(together[i], outside[i], 2e-5 * (1 + std::abs(outside[i]))) << s->name;
    for (const int64_t image : {0, 1, 2})
      EXPECT_EQ(run({image}, true), State(&together[image * 12], &together[image * 12] + 12))
          << s->name;
  }
  EXPECT_GE(tried, 15);
}

// Noise that nobody waits for any more, two draws before a run, clipped noise, another source: all
// as in memory.
TEST(denoiser, noise_that_waits__keeps_its_numbers_and_harms_no_other_vector) {
  const NoiseFill fill = keyed_noise({.seed = 5, .images = {3}, .elements = 12});
  Denoiser d({.sigma_data = 1}, simple(), {.image = {2, 3, 2}, .vectors = 8, .draws = true}, cpu());
  HostLatents<double> memory(
      12,
      [&](std::span<const double> x, double sigma, std::span<double> y, std::span<double>) {
        for (size_t i = 0; i < y.size(); ++i) y[i] = expected(d.precond(), x[i], sigma, 0);
      },
      fill);
  d.draw_by(5, {3});
  const State start = noise(12);
  const auto run = [&](Latents& l, Latent x) {
    { const Latent dropped = l.noise({.index = 0}, 0); }
    const Latent a = l.noise({.index = 1}, 0), b = l.noise({.index = 2}, 0);
    const Latent clipped = l.noise({.index = 3}, 1.5);
    Latent sum = 2 * x + 0.5 * a - b;
    const Latent answer = l.denoise(sum, 0.8, false).guided;
    const Latent late = l.noise({.index = 4}, 0);
    return answer + a + 3 * b + clipped + sum + late;
  };
  const State want = memory.values(run(memory, memory.put(start)));
  const Latent sum = run(d, d.put(start));
  d.draw_by(6, {3});  // numbers of before stay
  const State ours = d.values(sum);
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], want[i], 2e-5 * (1 + std::abs(want[i])));
}

TEST(denoiser, wrong_calls__are_named) {
  Denoiser d({}, simple(), {.batch = 2, .image = {2, 2, 1}, .classes = 10}, cpu());
  expect_error([&] { d.guidance(2); }, "guidance (2) needs a denoiser made for it");
  expect_error([&] { d.classes({1}); }, "needs a class for each of 2 images (got 1)");
  expect_error([&] { d.classes({1, 10}); }, "class must lie in [0, 10) or be -1 (10)");
  expect_error([&] { d.guide({{"cfg", {}}}, {}); }, "guidance rules need a denoiser made for them");
  Denoiser guided({}, simple(), {.image = {2, 2, 1}, .classes = 10, .guided = true}, cpu());
  expect_error(
      [&] {
        guided.guide({{"pag", {}}}, {.sigmas = {1, 0}});
      },
      "does not give: perturbed");
  expect_error([&] { d(State(7), 1); }, "needs a state of 8 numbers (got 7)");
  expect_error([&] { d.noise({}, 0); }, "needs a source of noise");
  const Latent a = d.put(State(8)), b = d.put(State(8)), c = d.put(State(8));
  expect_error([&] { d.put(State(8)); }, "holds more than the 3 vectors");
  expect_error(
      [] {
        denoiser_graph({}, simple(true), {.image = {2, 2, 1}});
      },
      "the network must return [1,2,2,1]  got f32[1,2,2,2]");
  expect_error(
      [] {
        denoiser_graph({}, simple(), {.image = {2, 2, 1}, .guided = true});
      },
      "guidance needs a network with classes");
}

}  // namespace
}  // namespace ebb
