// Losses: tables and targets against golden values, objectives against plain double arithmetic.
#include "diffusion/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "ops/prim/conv2d/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/gradients.h"
#include "passes/precision/mixed_precision.h"
#include "runtime/plan.h"
#include "support/cpu.h"
#include "support/files.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::hashed;
using testing::hashed_input;

nlohmann::json golden() { return testing::read_golden("diffusion"); }

using testing::cpu;

// The hashed inputs of the golden losses.
Tensor golden_x0() {
  Tensor t = hashed("input.x_start", {2, 16, 16, 3}, 1.25);
  for (float& v : t.span<float>()) v = std::clamp(v, -1.0f, 1.0f);
  return t;
}
Tensor golden_noise() { return hashed_input("input.noise", {2, 16, 16, 3}); }

// A network that returns w * x with w f32[c,1,1,3], and shows its input as output "x".
nn::Network mixer(int64_t channels) {
  return [channels](Graph& g, const nn::NetworkInputs& in) {
    g.output("x", in.x);
    const Value w = g.source(Source::Kind::param, "w", {DType::f32, {channels, 1, 1, 3}});
    return ops::conv2d(in.x, w);
  };
}

// The loss of given images, noise and timesteps (or sigmas), as outputs loss, mse and bound.
Graph fixed_loss(const DiffusionConfig& config, int64_t channels, bool weighted = false) {
  const Precond precond(config);
  Graph g;
  const Type image{DType::f32, {2, 16, 16, 3}};
  NoisyImages in;
  in.images = g.input("images", image);
  in.noise = g.input("noise", image);
  in.level.sigma = g.input("sigma", {DType::f32, {2}});
  in.level.argument = g.input("argument", {DType::f32, {2}});
  if (config.discrete()) in.level.timestep = g.input("timestep", {DType::i64, {2}});
  if (weighted) in.weight = g.input("weight", {DType::f32, {2}});
  const LossTerms terms = denoising_loss(precond, mixer(channels), in, {});
  g.output("loss", terms.loss);
  if (terms.bound) g.output("bound", terms.bound);
  if (terms.bound) g.output("mse", terms.mse);
  return g;
}

NamedTensors fixed_inputs(const DiffusionConfig& config, std::vector<int64_t> timesteps) {
  const Precond precond(config);
  std::vector<float> sigma, argument;
  for (const int64_t t : timesteps) {
    sigma.push_back(static_cast<float>(precond.table().sigma[static_cast<size_t>(t)]));
    argument.push_back(static_cast<float>(t));
  }
  return {{"images", golden_x0()},
          {"noise", golden_noise()},
          {"sigma", tensor_of(sigma, {2})},
          {"argument", tensor_of(argument, {2})},
          {"timestep", tensor_of(timesteps, {2})}};
}

Tensor weights(int64_t channels, double scale) { return hashed("w", {channels, 1, 1, 3}, scale); }

double l2(const Tensor& t) {
  double sum = 0;
  for (const float v : t.span<float>()) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

// ---- golden values -------------------------------------------------------------------------

TEST(beta_table, entries__equal_golden_values) {
  const auto tables = golden().at("ddpm").at("tables");
  for (const char* name : {"linear", "cosine"}) {
    const BetaTable t = beta_table(name, 1000);
    const std::pair<const char*, const std::vector<double>*> columns[] = {
        {"betas", &t.beta},
        {"alphas_cumprod", &t.alpha_bar},
        {"posterior_variance", &t.posterior_variance},
        {"posterior_log_variance_clipped", &t.posterior_log_variance},
        {"posterior_mean_coef1", &t.mean_x0},
        {"posterior_mean_coef2", &t.mean_xt}};
    for (const auto& [key, mine] : columns) {
      const auto& want = tables.at(name).at(key);
      double sum = 0;
      for (const double v : *mine) sum += v;
      EXPECT_NEAR(sum, want.at("sum").get<double>(), 1e-11 * std::abs(sum)) << name << key;
      for (size_t i = 0; i < want.at("values").size(); ++i) {
        const double v = want.at("values")[i];
        const auto entry = tables.at(name).at("entries")[i].get<size_t>();
        // The cosine of almost a right angle loses digits.
        EXPECT_NEAR((*mine)[entry], v, 1e-9 * std::abs(v)) << name << ' ' << key << ' ' << entry;
      }
    }
  }
}

TEST(precond, c_noise_and_rounding__equal_golden_values) {
  const std::map<std::string, std::string> names = {
      {"EDMPrecond", "edm"}, {"VPPrecond", "vp"}, {"VEPrecond", "ve"}, {"iDDPMPrecond", "iddpm"}};
  for (const auto& c : golden().at("edm").at("denoised").at("cases")) {
    const Precond p({.precond = names.at(c.at("preconditioning"))});
    for (const auto& v : c.at("values")) {
      const double sigma = v.at("sigma"), noise = v.at("c_noise"), rounded = v.at("round_sigma");
      EXPECT_NEAR(p.at(sigma).noise, noise, 1e-8 * std::abs(noise)) << c.at("preconditioning");
      EXPECT_NEAR(p.round_sigma(sigma), rounded, 1e-8 * rounded) << c.at("preconditioning");
    }
  }
}

// The exact output of a network for data y given y + sigma n, as the papers write it.
double prediction(const std::string& precond, double y, double n, double sigma) {
  if (precond == "ve") return -n;
  if (precond == "v") return (n - sigma * y) / std::hypot(sigma, 1);
  if (precond == "x0") return y;
  if (precond == "flow") return n - y;
  if (precond == "edm") return (sigma * y / 0.5 - 0.5 * n) / std::hypot(sigma, 0.5);
  return n;
}

TEST(precond, exact_prediction__returns_the_data) {
  for (const char* name : {"edm", "vp", "ve", "iddpm", "eps", "v", "x0", "flow"}) {
    const Precond p({.precond = name});
    const Space space = p.levels().space;
    for (const double sigma : {0.02, 0.9, space == Space::flow ? 1.0 : 30.0}) {
      const double y = 0.4, n = -1.3, x = alpha_of(space, sigma) * y + sigma * n;
      const PrecondNumbers k = p.at(sigma);
      EXPECT_NEAR(k.skip * x + k.out * prediction(name, y, n, sigma), y, 1e-12 * sigma + 1e-12)
          << name;
      const double variance = std::string(name) == "edm" ? 0.25 : 1;
      const double in = std::string(name) == "ve" || space == Space::flow
                            ? 1
                            : 1 / std::sqrt(sigma * sigma + variance);
      EXPECT_NEAR(k.in, in, 1e-12) << name;
    }
  }
}

TEST(loss, noisy_images__equal_golden_values) {
  for (const auto& c : golden().at("ddpm").at("losses")) {
    const DiffusionConfig config{.precond = "eps", .betas = c.at("schedule")};
    Plan plan(fixed_loss(config, 3), cpu());
    plan.bind("w", weights(3, 0));
    const NamedTensors out = plan.run(fixed_inputs(config, c.at("t")));
    const Tensor x = out.at("x");
    const auto& want = c.at("q_sample");
    EXPECT_NEAR(l2(x), want.at("l2").get<double>(), 1e-5 * l2(x));
    for (size_t i = 0; i < want.at("first").size(); ++i)
      EXPECT_NEAR(x.span<float>()[i], want.at("first")[i].get<double>(), 1e-5) << i;
    // The network returns 0, so the loss is the mean square of its target, the noise.
    const double noise = l2(golden_noise());
    EXPECT_NEAR(out.at("loss").span<float>()[0], noise * noise / 1536, 1e-5);
  }
}

TEST(loss, v_target__equals_golden_values) {
  for (const auto& c : golden().at("ddpm").at("v_target")) {
    const DiffusionConfig config{.precond = "v", .betas = c.at("schedule")};
    Plan plan(fixed_loss(config, 3), cpu());
    plan.bind("w", weights(3, 0));
    const double want = c.at("l2").get<double>();
    EXPECT_NEAR(plan.run(fixed_inputs(config, c.at("t"))).at("loss").span<float>()[0],
                want * want / 1536, 1e-5);
  }
}

// ---- objectives in plain double arithmetic -------------------------------------------------

// EDM's loss as the paper writes it: mean of weight(sigma) (D(y + n) - y)^2.
TEST(loss, edm__is_the_weighted_error_of_the_denoiser) {
  for (const double d : {0.5, 1.0}) {
    const DiffusionConfig config{.sigma_data = d};
    const std::vector<float> sigmas = {0.02f, 3.0f};
    Plan plan(fixed_loss(config, 3), cpu());
    const Tensor w = weights(3, 1), y = golden_x0(), n = golden_noise();
    plan.bind("w", w);
    const NamedTensors out = plan.run({{"images", y},
                                       {"noise", n},
                                       {"sigma", tensor_of(sigmas, {2})},
                                       {"argument", tensor_of(sigmas, {2})}});
    double total = 0;
    for (size_t i = 0; i < 1536; ++i) {
      const double s = sigmas[i / 768], q = s * s + d * d;
      double f = 0;
      for (size_t c = 0; c < 3; ++c) {
        const size_t at = i / 3 * 3 + c;
        const double x = y.span<float>()[at] + s * n.span<float>()[at];
        f += w.span<float>()[i % 3 * 3 + c] * x / std::sqrt(q);
      }
      const double x = y.span<float>()[i] + s * n.span<float>()[i];
      const double denoised = d * d / q * x + s * d / std::sqrt(q) * f;
      const double weight = q / (s * d * s * d);
      total += weight * std::pow(denoised - y.span<float>()[i], 2);
    }
    EXPECT_NEAR(out.at("loss").span<float>()[0], total / 1536, 2e-6 * total / 1536);
  }
}

double cdf(double x) {
  return 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// The bound of one value in bits, straight from its definition.
double bound_of(const BetaTable& table, size_t t, double x0, double noise, const double (&f)[2]) {
  const double bar = table.alpha_bar[t];
  const double xt = std::sqrt(bar) * x0 + std::sqrt(1 - bar) * noise;
  const double guess = (xt - std::sqrt(1 - bar) * f[0]) / std::sqrt(bar);
  const double mean = table.mean_x0[t] * guess + table.mean_xt[t] * xt;
  const double frac = (f[1] + 1) / 2, low = table.posterior_log_variance[t];
  const double log_variance = frac * std::log(table.beta[t]) + (1 - frac) * low;
  if (t > 0) {
    const double truth = table.mean_x0[t] * x0 + table.mean_xt[t] * xt;
    const double kl = 0.5 * (-1 + log_variance - low + std::exp(low - log_variance) +
                             std::pow(truth - mean, 2) * std::exp(-log_variance));
    return kl / std::numbers::ln2;
  }
  const double inverse = std::exp(-0.5 * log_variance), d = x0 - mean;
  const double upper = cdf((d + 1.0 / 255) * inverse), lower = cdf((d - 1.0 / 255) * inverse);
  const double p = x0 < -0.999 ? upper : x0 > 0.999 ? 1 - lower : upper - lower;
  return -std::log(std::max(p, 1e-12)) / std::numbers::ln2;
}

TEST(loss, hybrid__equals_its_definition) {
  for (const char* betas : {"linear", "cosine"})
    for (const std::vector<int64_t>& steps : {std::vector<int64_t>{0, 1}, {17, 803}, {500, 999}}) {
      const DiffusionConfig config{.precond = "eps", .betas = betas, .learn_sigma = true};
      Plan plan(fixed_loss(config, 6), cpu());
      const Tensor w = weights(6, 0.3);
      plan.bind("w", w);
      const NamedTensors out = plan.run(fixed_inputs(config, steps));
      const BetaTable table = beta_table(betas, 1000);
      const Tensor y = golden_x0(), n = golden_noise();
      double mse = 0, bound = 0;
      for (size_t i = 0; i < 1536; ++i) {
        const auto t = static_cast<size_t>(steps[i / 768]);
        double f[2] = {0, 0};
        for (size_t c = 0; c < 6; ++c) {
          const size_t at = i / 3 * 3 + c % 3;
          const double x = std::sqrt(table.alpha_bar[t]) * y.span<float>()[at] +
                           std::sqrt(1 - table.alpha_bar[t]) * n.span<float>()[at];
          f[c / 3] += w.span<float>()[(c / 3 * 3 + i % 3) * 3 + c % 3] * x;
        }
        mse += std::pow(f[0] - n.span<float>()[i], 2) / 1536;
        bound += bound_of(table, t, y.span<float>()[i], n.span<float>()[i], f) / 1536;
      }
      EXPECT_NEAR(out.at("mse").span<float>()[0], mse, 1e-5 * mse) << betas << steps[0];
      EXPECT_NEAR(out.at("bound").span<float>()[0], bound, 1e-5 * bound) << betas << steps[0];
      EXPECT_NEAR(out.at("loss").span<float>()[0], mse + bound, 1e-5 * (mse + bound));
    }
}

TEST(loss, bound__trains_only_the_variances) {
  const DiffusionConfig config{.precond = "eps", .learn_sigma = true, .vb_weight = 1};
  Graph g = fixed_loss(config, 6);
  g.take_output("loss");
  const std::string wrt[] = {"w"};
  Plan plan(gradients(g, "bound", wrt), cpu());
  plan.bind("w", weights(6, 0.3));
  const Tensor grad = plan.run(fixed_inputs(config, {17, 803})).at("grad.w");
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(grad.span<float>()[i], 0) << i;
  EXPECT_GT(l2(grad), 1e-5);
}

TEST(loss, min_snr__bounds_the_weight_of_clean_images) {
  DiffusionConfig config{.precond = "eps", .weighting = "min_snr"};
  Plan plan(fixed_loss(config, 3), cpu());
  plan.bind("w", weights(3, 0));
  const Tensor noise = golden_noise();
  const double first = l2(noise.rows(0, 1)), second = l2(noise.rows(1, 2));
  // Above sigma = 1 / sqrt(5) the weight is 1.
  const double sigma = beta_table("linear", 1000).sigma[1];
  const double want = (5 * sigma * sigma * first * first + second * second) / 1536;
  EXPECT_NEAR(plan.run(fixed_inputs(config, {1, 800})).at("loss").span<float>()[0], want,
              1e-5 * want);
  // with factors of the images' own, as DreamBooth has for those of the prior
  Plan weighed(fixed_loss(config, 3, true), cpu());
  weighed.bind("w", weights(3, 0));
  NamedTensors in = fixed_inputs(config, {1, 800});
  in["weight"] = tensor_of(std::vector<float>{1, 0.25F}, {2});
  const double less = want - 0.75 * second * second / 1536;
  EXPECT_NEAR(weighed.run(in).at("loss").span<float>()[0], less, 1e-5 * want);
}

// ---- draws ---------------------------------------------------------------------------------

struct Draws {
  std::vector<float> sigma, argument;
  std::vector<int64_t> timestep;
};

Draws draw(const DiffusionConfig& config, std::vector<int64_t> images) {
  const auto n = static_cast<int64_t>(images.size());
  Graph g;
  const ops::RandomKeys key{g.input("seed", {DType::i64, {}}), g.input("image", {DType::i64, {n}}),
                            g.input("step", {DType::i64, {}})};
  const NoiseLevels level = draw_noise_levels(Precond(config), key);
  g.output("sigma", level.sigma);
  g.output("argument", level.argument);
  if (level.timestep) g.output("timestep", level.timestep);
  const NamedTensors out = Plan(g, cpu()).run({{"seed", scalar_tensor<int64_t>(7)},
                                               {"image", tensor_of(images, {n})},
                                               {"step", scalar_tensor<int64_t>(3)}});
  const auto floats = [&](const char* name) {
    const auto s = out.at(name).span<float>();
    return std::vector<float>(s.begin(), s.end());
  };
  Draws d{floats("sigma"), floats("argument"), {}};
  if (!level.timestep) return d;
  const auto t = out.at("timestep").span<int64_t>();
  d.timestep.assign(t.begin(), t.end());
  return d;
}

std::vector<int64_t> first_images(int64_t count) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(i);
  return v;
}

TEST(noise_levels, argument__is_the_preconditionings_c_noise) {
  for (const char* precond : {"edm", "vp", "ve", "eps", "v", "x0", "iddpm", "flow"}) {
    const DiffusionConfig config{.precond = precond};
    const Precond p(config);
    const Draws d = draw(config, first_images(64));
    for (size_t i = 0; i < 64; ++i) {
      const double want = p.at(d.sigma[i]).noise;
      EXPECT_NEAR(d.argument[i], want, 2e-5 * std::max(1.0, std::abs(want))) << precond << ' ' << i;
    }
  }
}

TEST(noise_levels, edm__are_log_normal) {
  const DiffusionConfig config{.P_mean = -0.4, .P_std = 1.5};
  const Draws d = draw(config, first_images(20000));
  double mean = 0, square = 0;
  for (const float s : d.sigma) {
    const double z = (std::log(s) + 0.4) / 1.5;
    mean += z / 20000;
    square += z * z / 20000;
  }
  // Four standard errors.
  EXPECT_NEAR(mean, 0, 4 / std::sqrt(20000.0));
  EXPECT_NEAR(square, 1, 4 * std::sqrt(2 / 20000.0));
}

TEST(noise_levels, timesteps__are_uniform) {
  const Draws d = draw({.precond = "eps", .timesteps = 50}, first_images(20000));
  std::vector<int64_t> count(50);
  for (const int64_t t : d.timestep) ++count.at(static_cast<size_t>(t));
  for (const int64_t n : count) EXPECT_NEAR(static_cast<double>(n), 400, 4.5 * std::sqrt(400.0));
}

TEST(noise_levels, image__has_the_same_level_in_any_batch) {
  const Draws a = draw({}, {5, 6, 7}), b = draw({}, {7, 5});
  EXPECT_EQ(a.sigma[0], b.sigma[1]);
  EXPECT_EQ(a.sigma[2], b.sigma[0]);
}

TEST(loss_graph, label_dropout__hides_that_part_of_the_labels) {
  const int64_t n = 4000;
  const nn::Network network = [](Graph& g, const nn::NetworkInputs& in) {
    g.output("seen", in.condition("class"));
    return ops::map({in.x}, [](auto v) { return v[0] * 0.5; });
  };
  for (const double p : {0.0, 0.1, 1.0}) {
    const DiffusionConfig config{.label_dropout = p};
    Plan plan(loss_graph(config, network,
                         {.batch = n, .image = {1, 1, 1}, .conditions = {nn::class_condition(9)}}),
              cpu());
    const std::vector<int64_t> labels(static_cast<size_t>(n), 3);
    const NamedTensors out = plan.run({{"images", Tensor(DType::f32, {n, 1, 1, 1})},
                                       {"class", tensor_of(labels, {n})},
                                       {"seed", scalar_tensor<int64_t>(1)},
                                       {"image", tensor_of(first_images(n), {n})},
                                       {"step", scalar_tensor<int64_t>(0)}});
    int64_t hidden = 0;
    for (const int64_t c : out.at("seen").span<int64_t>()) {
      EXPECT_TRUE(c == 3 || c == -1) << c;
      hidden += c == -1;
    }
    EXPECT_NEAR(static_cast<double>(hidden), p * n, 4 * std::sqrt(p * (1 - p) * n));
    EXPECT_GT(out.at("loss").span<float>()[0], 0);
  }
}

// Each guided condition is dropped by draws of its own, whole values at a time.
TEST(loss_graph, label_dropout__drops_every_guided_condition_by_itself) {
  const int64_t n = 4000;
  const nn::Condition text{.name = "text", .shape = {3, 2}, .null = 0.5},
      size{.name = "size", .shape = {2}, .guided = false};
  const nn::Network network = [](Graph& g, const nn::NetworkInputs& in) {
    for (const char* name : {"class", "text", "size"})
      g.output(str("seen.", name), in.condition(name));
    return ops::map({in.x}, [](auto v) { return v[0] * 0.5; });
  };
  Plan plan(
      loss_graph(
          {.label_dropout = 0.2}, network,
          {.batch = n, .image = {1, 1, 1}, .conditions = {nn::class_condition(9), text, size}}),
      cpu());
  Tensor words(DType::f32, {n, 3, 2}), sizes(DType::f32, {n, 2});
  std::ranges::fill(words.span<float>(), 2.f);
  std::ranges::fill(sizes.span<float>(), 7.f);
  const NamedTensors out =
      plan.run({{"images", Tensor(DType::f32, {n, 1, 1, 1})},
                {"class", tensor_of(std::vector<int64_t>(static_cast<size_t>(n), 3), {n})},
                {"text", words},
                {"size", sizes},
                {"seed", scalar_tensor<int64_t>(1)},
                {"image", tensor_of(first_images(n), {n})},
                {"step", scalar_tensor<int64_t>(0)}});
  const auto ids = out.at("seen.class").span<int64_t>();
  const auto text_seen = out.at("seen.text").span<float>();
  double no_class = 0, no_text = 0, neither = 0;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const bool dropped = text_seen[6 * i] == 0.5f;
    for (size_t k = 0; k < 6; ++k) EXPECT_EQ(text_seen[6 * i + k], dropped ? 0.5f : 2.f);
    no_class += ids[i] == -1;
    no_text += dropped;
    neither += ids[i] == -1 && dropped;
  }
  EXPECT_NEAR(no_class, 0.2 * n, 4 * std::sqrt(0.16 * n));
  EXPECT_NEAR(no_text, 0.2 * n, 4 * std::sqrt(0.16 * n));
  EXPECT_NEAR(neither, 0.04 * n, 4 * std::sqrt(0.04 * n));
  for (const float v : out.at("seen.size").span<float>()) EXPECT_EQ(v, 7.f);
}

TEST(loss_graph, bf16__gives_about_the_same_gradients) {
  const nn::Network network = [](Graph& g, const nn::NetworkInputs& in) {
    return ops::conv2d(in.x, g.source(Source::Kind::param, "w", {DType::f32, {6, 1, 1, 3}}));
  };
  for (const char* precond : {"eps", "v"}) {
    const DiffusionConfig config{.precond = precond, .learn_sigma = true};
    const Graph g = loss_graph(config, network, {.batch = 2, .image = {16, 16, 3}});
    const std::string wrt[] = {"w"};
    std::vector<Tensor> grads;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Plan plan(gradients(mixed_precision(g, dtype), "loss", wrt), cpu());
      plan.bind("w", weights(6, 0.3));
      grads.push_back(plan.run({{"images", golden_x0()},
                                {"seed", scalar_tensor<int64_t>(1)},
                                {"image", tensor_of(first_images(2), {2})},
                                {"step", scalar_tensor<int64_t>(0)}})
                          .at("grad.w"));
    }
    double error = 0;
    for (size_t i = 0; i < 18; ++i)
      error += std::pow(grads[0].span<float>()[i] - grads[1].span<float>()[i], 2);
    EXPECT_LT(std::sqrt(error), 0.02 * l2(grads[0])) << precond;
    EXPECT_GT(error, 0);
  }
}

// ---- errors --------------------------------------------------------------------------------

TEST(diffusion_config, wrong_values__are_named) {
  const auto expect = [](const DiffusionConfig& c, std::string_view part) {
    expect_error([&] { check(c); }, part);
  };
  expect({.precond = "edn"}, "unknown precond 'edn' (did you mean 'edm'?)");
  expect({.betas = "cosin"}, "unknown betas 'cosin' (did you mean 'cosine'?)");
  expect({.times = "logit"}, "unknown times 'logit'");
  expect({.shift = 0}, "shift must be positive (0)");
  expect({.weighting = "snr"}, "unknown weighting 'snr'");
  expect({.sigma_data = 0}, "sigma_data must be positive (0)");
  expect({.P_std = -1}, "P_std must be positive (-1)");
  expect({.precond = "eps", .timesteps = 20}, "linear betas need more than 20 timesteps (20)");
  expect({.learn_sigma = true}, "learn_sigma needs precond eps, v, x0 or iddpm (edm)");
  expect({.label_dropout = 1.5}, "label_dropout must lie in [0, 1] (1.5)");
  expect({.sigma_min = 2, .sigma_max = 1}, "sigma_min (2) must be below sigma_max (1)");
}

TEST(loss, output_of_other_channels__is_an_error) {
  expect_error([] { fixed_loss({.precond = "eps", .learn_sigma = true}, 3); },
               "loss: the network must return [2,16,16,6]  got f32[2,16,16,3]  (learn_sigma)");
  expect_error([] { fixed_loss({}, 6); }, "loss: the network must return [2,16,16,3]");
}

}  // namespace
}  // namespace ebb
