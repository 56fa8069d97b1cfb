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
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

using testing::cpu;

Value per_image(Value v) { return ops::cast(ops::reshape(v, {v.shape()[0], 1, 1, 1}), DType::f32); }

// Predicts 0.3 x + 0.01 c_noise + 0.1 class, and something else for variances.
nn::Network simple(bool learn_sigma = false) {
  return [learn_sigma](Graph& g, const nn::NetworkInputs& in) {
    const Value zero = ops::constant(g, 0, {in.x.shape()[0], 1, 1, 1});
    const Value ids = in.condition(nn::class_id), c = ids ? per_image(ids) : zero;
    const Value f = ops::map({in.x, per_image(in.noise), c},
                             [](auto v) { return v[0] * 0.3 + v[1] * 0.01 + v[2] * 0.1; });
    return learn_sigma ? ops::concat({f, f}, 3) : f;
  };
}

Tensor ids(const std::vector<int64_t>& values) {
  return tensor_of(values, {static_cast<int64_t>(values.size())});
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
  Denoiser d(config, simple(), {.image = {1, 1, 1}, .timesteps_apart = 1}, cpu());
  for (const double sigma : {0.7, 3.3}) {
    const PrecondNumbers c = d.precond().at(sigma, 1);
    EXPECT_EQ(c.noise, std::round(c.noise));
    EXPECT_NE(c.noise, d.precond().at(sigma).noise);
    EXPECT_NEAR(d({2.0}, sigma)[0], 2 + c.out * (0.3 * c.in * 2 + 0.01 * c.noise), 1e-4);
  }
}

TEST(denoiser, guidance__goes_from_none_through_the_class) {
  const DenoiserOptions options{.batch = 2,
                                .image = {2, 2, 1},
                                .conditions = {nn::class_condition(10)},
                                .branches = both_branches};
  Denoiser d({}, simple(), options, cpu());
  d.condition("class", ids({7, 2}));
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

// D_uncond + s sum_k w_k (D_k - D_uncond), in one batch and one by one; the same by a rule on the
// host.
TEST(denoiser, parts_of_a_prompt__add_their_weighted_differences) {
  const std::vector<double> weights = {1, 0.5, -0.25};
  const double scale = 3;
  for (const bool together : {true, false}) {
    Denoiser d({}, simple(),
               {.batch = 2,
                .image = {2, 2, 1},
                .conditions = {nn::class_condition(10)},
                .branches = {Branch::cond, Branch::uncond, Branch::cond, Branch::cond},
                .together = together,
                .vectors = 5},
               cpu());
    d.condition("class", ids({7, 2}), {ids({0, 1}), ids({4, 4}), ids({9, 3})});
    d.weigh(weights);
    const State x = noise(8);
    for (const char* rules : {"cfg:scale=3", "cfg:scale=3;cfg_rescale:guidance_rescale=0.0001"}) {
      d.guide(parse_rules(rules), {.sigmas = {1, 0}});
      const State y = d(x, 0.7);
      for (size_t i = 0; i < 8; ++i) {
        const auto of = [&](int64_t first, int64_t second) {
          return expected(d.precond(), x[i], 0.7, i < 4 ? first : second);
        };
        const double none = of(0, 1);
        const double change = weights[0] * (of(7, 2) - none) + weights[1] * (of(4, 4) - none) +
                              weights[2] * (of(9, 3) - none);
        EXPECT_NEAR(y[i], none + scale * change, 1e-3) << rules;
      }
    }
  }
}

// InstructPix2Pix: u + s (c - p) + s2 (p - u).
TEST(denoiser, further_branch__is_read_by_the_rules_that_need_it) {
  Denoiser d({}, simple(),
             {.image = {2, 2, 1},
              .conditions = {nn::class_condition(10)},
              .branches = {Branch::cond, Branch::uncond, Branch::partial}},
             cpu());
  d.condition("class", ids({7}), {ids({0}), ids({4})});
  d.guide(parse_rules("dual_cfg:scale=5,image_guidance_scale=1.5"), {.sigmas = {1, 0}});
  const State x = noise(4), y = d(x, 0.7);
  for (size_t i = 0; i < 4; ++i) {
    const auto of = [&](int64_t id) { return expected(d.precond(), x[i], 0.7, id); };
    EXPECT_NEAR(y[i], of(0) + 5 * (of(7) - of(4)) + 1.5 * (of(4) - of(0)), 1e-4);
  }
}

// Linear rules in the plan, others on the host, against the rules in memory.
TEST(denoiser, guidance_rules__work_as_in_memory) {
  const SampleCall call{.sigmas = {9, 4, 2, 1, 0.4, 0}};
  const DenoiserOptions options{.batch = 2,
                                .image = {2, 3, 2},
                                .conditions = {nn::class_condition(10)},
                                .branches = both_branches,
                                .vectors = count("heun", call).vectors + 1};
  const State start = noise(24);
  for (const char* text : {"cfg:scale=3", "interval:sigma_lo=0.5,sigma_hi=5;cfg:scale=3",
                           "cfg:scale=3;cfg_rescale", "apg:scale=4"}) {
    Denoiser d({.sigma_data = 1}, simple(), options, cpu());
    d.condition("class", ids({7, 2}));
    const GuidanceCall guidance{.shape = {2, 2, 3, 2}, .sigmas = call.sigmas};
    d.guide(parse_rules(text), guidance);
    GuidanceCall host = guidance;
    host.raw = [&](double sigma) {
      return OutputForm{d.precond().at(sigma).skip, d.precond().at(sigma).out};
    };
    const auto predict = [&](std::span<const double> x, double sigma,
                             std::span<const Branch> branches,
                             std::span<const std::span<double>> predictions) {
      for (size_t k = 0; k < branches.size(); ++k)
        for (size_t i = 0; i < x.size(); ++i) {
          const double c = branches[k] == Branch::uncond ? -1 : i < 12 ? 7 : 2;
          predictions[k][i] = expected(d.precond(), x[i], sigma, c);
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

// A sampler's vectors in the plan against vectors in memory, for every sampler there is; and what a
// run makes does not depend on the runs before it.
TEST(denoiser, samplers__work_in_its_plan_as_in_memory) {
  const DiffusionConfig config{.precond = "edm", .sigma_data = 1};
  const std::vector<double> sigmas = {9, 4, 2, 1, 0.4, 0.1, 0};
  const State start = noise(12);
  for (const Sampler* s : all_samplers()) {
    const SampleCall call{.sigmas = sigmas};
    Denoiser d(config, simple(),
               {.image = {2, 3, 2},
                .conditions = {nn::class_condition(4)},
                .branches = s->needs_uncond ? both_branches : std::vector{Branch::cond},
                .vectors = count(s->name, call).vectors},
               cpu());
    d.condition("class", ids({2}));
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
    EXPECT_EQ(d.values(sample(s->name, d, 9 * d.put(start), call)), ours) << s->name;
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
                  .conditions = {nn::class_condition(4)},
                  .branches = s->needs_uncond ? both_branches : std::vector{Branch::cond},
                  .vectors = counts.vectors,
                  .draws = in_plan},
                 cpu());
      d.condition("class", ids(std::vector<int64_t>(images.size(), 2)));
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
    const Latent prediction = l.denoise(sum, 0.8, false).guided;
    const Latent late = l.noise({.index = 4}, 0);
    return prediction + a + 3 * b + clipped + sum + late;
  };
  const State want = memory.values(run(memory, memory.put(start)));
  const Latent sum = run(d, d.put(start));
  d.draw_by(6, {3});  // numbers of before stay
  const State ours = d.values(sum);
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], want[i], 2e-5 * (1 + std::abs(want[i])));
}

// ---- conditions ----------------------------------------------------------------------------

const nn::Condition text{.name = "text", .shape = {nn::Condition::any, 3}, .null = 0.25},
    strength{.name = "strength", .guided = false};

// Answers 0.3 x + the mean over tokens and channels of the text + the strength; of conditions that
// are not given, their null values.
Value text_like(Graph& g, const nn::NetworkInputs& in) {
  const auto number = [&](const nn::Condition& c) {
    const Value v = in.condition(c.name);
    if (!v) return ops::constant(g, c.null, {in.x.shape()[0], 1, 1, 1});
    std::vector<int64_t> dims;
    for (int64_t i = 1; i < v.shape().rank(); ++i) dims.push_back(i);
    return per_image(dims.empty() ? v : ops::reshape(ops::mean(v, dims), {v.shape()[0]}));
  };
  return ops::map({in.x, number(text), number(strength)},
                  [](auto v) { return v[0] * 0.3 + v[1] + v[2]; });
}

TEST(denoiser, conditions__come_by_name_with_any_number_of_tokens) {
  for (const int64_t tokens : {1, 2, 5}) {
    Tensor states(DType::f32, {2, tokens, 3}), negative(DType::f32, {2, tokens, 3});
    fill_normal({.seed = 4}, 0, states.span<float>());
    fill_normal({.seed = 5}, 0, negative.span<float>());
    const std::vector<nn::Condition> given = {text.sized_as(states), strength};
    Denoiser d({}, text_like,
               {.batch = 2, .image = {2, 2, 1}, .conditions = given, .branches = both_branches},
               cpu());
    const auto mean = [&](const Tensor& t, size_t image) {
      const auto v = t.rows(static_cast<int64_t>(image), static_cast<int64_t>(image) + 1);
      double sum = 0;
      for (const float x : v.span<float>()) sum += double{x};
      return sum / static_cast<double>(3 * tokens);
    };
    const State x = noise(8);
    const PrecondNumbers k = d.precond().at(0.7);
    const auto expect = [&](double w, bool has_negative) {
      d.guidance(w);
      const State y = d(x, 0.7);
      for (size_t i = 0; i < 8; ++i) {
        const auto predicted = [&](double words) {
          return k.skip * x[i] + k.out * (0.3 * k.in * x[i] + words + (i < 4 ? 2.0 : -1.0));
        };
        const double c = predicted(mean(states, i / 4)),
                     u = predicted(has_negative ? mean(negative, i / 4) : 0.25);
        EXPECT_NEAR(y[i], u + w * (c - u), 1e-5) << tokens << " tokens, scale " << w;
      }
    };
    d.condition("strength", tensor_of(std::vector<float>{2, -1}, {2}));
    d.condition("text", states);
    expect(1, false);
    expect(3, false);  // away from the null value
    d.condition("text", states, {negative});
    expect(3, true);
    expect_error(
        [&] {
          d.condition("text", Tensor(DType::f32, {2, tokens + 1, 3}));
        },
        str("denoiser: text must be f32[2,", tokens, ",3]  got f32[2,", tokens + 1, ",3]"));
    expect_error(
        [&] { d.condition("strength", Tensor(DType::f32, {2}), {Tensor(DType::f32, {2})}); },
        "strength has no negative value");
  }
}

TEST(denoiser, condition_of_unknown_size__cannot_be_compiled) {
  expect_error(
      [] {
        denoiser_graph({}, text_like, {.image = {2, 2, 1}, .conditions = {text}});
      },
      "the sizes of 'text' are not known (f32[1,any,3])");
}

// The plan's own inputs and a condition's are told apart; what is given once stays.
TEST(denoiser, values_that_do_not_change__are_given_once) {
  const nn::Condition ten = nn::class_condition(10);
  Denoiser d({}, simple(), {.batch = 2, .image = {2, 2, 1}, .conditions = {ten}, .draws = true},
             cpu());
  d.condition("class", ids({7, 2}));
  const State first = d(noise(8), 0.7);
  EXPECT_EQ(d(noise(8), 0.7), first);
  d.condition("class", ids({7, 3}));
  EXPECT_NE(d(noise(8), 0.7), first);
  d.condition("class", ids({7, 2}));
  EXPECT_EQ(d(noise(8), 0.7), first);
}

TEST(denoiser, evaluation__is_sent_its_numbers_in_one_copy) {
  const auto device = std::make_shared<testing::FarDevice>();
  Denoiser d({}, simple(),
             {.batch = 2,
              .image = {2, 2, 1},
              .conditions = {nn::class_condition(10)},
              .branches = both_branches,
              .draws = true},
             {.device = device});
  d.condition("class", ids({7, 2}));
  d.guidance(2);
  d.draw_by(5, {0, 1});
  Latent x = d.put(noise(8));
  d.denoise(x, 3, false);
  const int before = device->transfers;
  for (const double sigma : {2.0, 1.0, 0.5}) {
    x = x + d.noise({}, 0);
    d.denoise(x, sigma, false);
  }
  EXPECT_EQ(device->transfers - before, 3);
  EXPECT_EQ(device->launches, 4);
}

TEST(denoiser, wrong_calls__are_named) {
  Denoiser d({}, simple(),
             {.batch = 2, .image = {2, 2, 1}, .conditions = {nn::class_condition(10)}}, cpu());
  expect_error([&] { d.guidance(2); }, "guidance (2) needs a denoiser made for it");
  expect_error([&] { d.condition("class", ids({1})); }, "class must be i64[2]  got i64[1]");
  expect_error(
      [&] {
        d.condition("class", ids({1, 10}));
      },
      "class must lie in [0, 10) or be -1 (10)");
  expect_error([&] { d.condition("text", ids({1, 1})); }, "it is given no condition 'text'");
  expect_error([&] { d.guide({{"cfg", {}}}, {}); }, "guidance rules need a denoiser made for them");
  Denoiser guided(
      {}, simple(),
      {.image = {2, 2, 1}, .conditions = {nn::class_condition(10)}, .branches = both_branches},
      cpu());
  expect_error(
      [&] {
        guided.guide({{"pag", {}}}, {.sigmas = {1, 0}});
      },
      "does not provide: perturbed");
  expect_error([&] { d.weigh({0.5}); }, "needs a denoiser made for guidance");
  expect_error([&] { guided.weigh({1, 1}); }, "each part of a prompt needs a weight (1 and 2)");
  expect_error(
      [&] {
        guided.condition("class", ids({1}), {ids({2}), ids({3})});
      },
      "a value for each of 2 branches (got 3)");
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
        denoiser_graph({}, simple(), {.image = {2, 2, 1}, .branches = both_branches});
      },
      "guidance needs a condition that it is given");
}

}  // namespace
}  // namespace ebb
