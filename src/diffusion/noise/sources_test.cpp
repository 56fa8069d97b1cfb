// What holds for all noise sources, and the rules of each that no golden file shows.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/noise/noise.h"
#include "diffusion/noise/rng/brownian_tree.h"
#include "diffusion/noise/rng/generator.h"
#include "diffusion/solver/dialect.h"
#include "support/files.h"

namespace ebb {
namespace {

using Numbers = std::vector<double>;

const std::vector<double> levels = {14.6, 7, 3, 1, 0.3, 0.03, 0};

NoiseCall call_of(std::vector<int64_t> images, std::vector<int64_t> shape = {4, 6, 4}) {
  return {.seed = 7, .images = std::move(images), .shape = std::move(shape), .sigmas = levels};
}

Numbers start_of(const Noise& noise, const NoiseCall& call) {
  Numbers z(static_cast<size_t>(call.batch() * call.elements()));
  noise.start(z);
  return z;
}

Numbers step_of(const Noise& noise, const NoiseCall& call, int64_t i) {
  Numbers z(static_cast<size_t>(call.batch() * call.elements()));
  noise.step(z, {i, levels[static_cast<size_t>(i)], levels[static_cast<size_t>(i) + 1]});
  return z;
}

Numbers part(const Numbers& z, const NoiseCall& call, int64_t image) {
  const auto from = z.begin() + image * call.elements();
  return {from, from + call.elements()};
}

Numbers randn(const GeneratorKind& kind, uint64_t seed, size_t n) {
  Numbers z(n);
  make_generator(kind, seed)->normal(z);
  return z;
}

std::string error_of(const std::string& source, const NoiseCall& call, const OptionTexts& options) {
  return testing::error_of([&] { open_noise(source, call, options); });
}

TEST(noise_sources, all__normal_and_other_numbers_for_every_draw) {
  const NoiseCall call = call_of({0, 1}, {40, 40, 4});
  for (const NoiseSource* source : all_noise_sources()) {
    const Noise noise = open_noise(source->name, call);
    std::vector<Numbers> draws = {start_of(noise, call)};
    for (int64_t i = 0; i < 5; ++i) draws.push_back(step_of(noise, call, i));
    for (size_t a = 0; a < draws.size(); ++a) {
      const auto n = static_cast<double>(draws[a].size());
      for (size_t b = 0; b <= a; ++b) {
        const double dot =
            std::inner_product(draws[a].begin(), draws[a].end(), draws[b].begin(), 0.0);
        // Four deviations; a normal number's square has twice the variance.
        EXPECT_NEAR(dot / n, a == b ? 1 : 0, 4 * std::sqrt((a == b ? 2 : 1) / n)) << source->name;
      }
      const double mean = std::accumulate(draws[a].begin(), draws[a].end(), 0.0) / n;
      EXPECT_NEAR(mean, 0, 4 / std::sqrt(n)) << source->name;
    }
    EXPECT_NE(part(draws[0], call, 0), part(draws[0], call, 1)) << source->name;
  }
}

TEST(noise_sources, all__draws_in_any_order_are_the_same) {
  const NoiseCall call = call_of({0, 1});
  for (const NoiseSource* source : all_noise_sources()) {
    const Noise a = open_noise(source->name, call), b = open_noise(source->name, call);
    const Numbers start = start_of(a, call), first = step_of(a, call, 0);
    const Numbers second = step_of(a, call, 1), fourth = step_of(a, call, 3);
    EXPECT_EQ(step_of(b, call, 3), fourth) << source->name;
    EXPECT_EQ(step_of(b, call, 0), first) << source->name;
    EXPECT_EQ(start_of(b, call), start) << source->name;
    EXPECT_EQ(step_of(b, call, 1), second) << source->name;
  }
}

TEST(noise_sources, of_pictures__a_batch_is_its_pictures) {
  const std::vector<std::pair<std::string, OptionTexts>> sources = {
      {"ebb", {}},
      {"nv", {}},
      {"a1111", {{"ensd", "31337"}}},
      {"a1111", {{"subseed_strength", "0.4"}, {"resize_height", "3"}, {"resize_width", "9"}}},
      {"torch_cpu", {{"per_image", "true"}}},
      {"torch_cuda", {{"per_image", "true"}}},
      {"brownian", {{"per_image", "true"}}}};
  const NoiseCall batch = call_of({2, 5, 3});
  for (const auto& [source, options] : sources) {
    const Noise all = open_noise(source, batch, options);
    const Numbers start = start_of(all, batch), step = step_of(all, batch, 2);
    for (int64_t i = 0; i < 3; ++i) {
      const NoiseCall one = call_of({batch.image(i)});
      const Noise alone = open_noise(source, one, options);
      EXPECT_EQ(start_of(alone, one), part(start, batch, i)) << source;
      EXPECT_EQ(step_of(alone, one, 2), part(step, batch, i)) << source;
    }
  }
}

TEST(noise_sources, one_generator__a_batch_may_come_in_pieces) {
  const NoiseCall whole = call_of({0, 1, 2}), rest = call_of({2, 1});
  for (const std::string source : {"torch_cpu", "nv", "brownian"}) {
    const OptionTexts options = {{"per_image", "false"}};
    const Noise a = open_noise(source, whole, options), b = open_noise(source, rest, options);
    const Numbers all = step_of(a, whole, 1), some = step_of(b, rest, 1);
    EXPECT_EQ(part(some, rest, 0), part(all, whole, 2)) << source;
    EXPECT_EQ(part(some, rest, 1), part(all, whole, 1)) << source;
  }
}

TEST(noise_sources, channels_first__become_last) {
  const NoiseCall call = call_of({0});
  const Numbers z = start_of(open_noise("torch_cpu", call), call);
  const Numbers drawn = randn({}, 7, z.size());
  for (size_t c = 0; c < 4; ++c)
    for (size_t cell = 0; cell < 24; ++cell) EXPECT_EQ(z[cell * 4 + c], drawn[c * 24 + cell]);
  const NoiseCall tokens = call_of({0}, {24, 4});
  EXPECT_EQ(start_of(open_noise("torch_cpu", tokens), tokens), drawn);
}

TEST(noise_sources, wrong_calls__say_what_would_do) {
  const NoiseCall call = call_of({0});
  EXPECT_NE(error_of("torch_gpu", call, {}).find("did you mean 'torch_"), std::string::npos);
  EXPECT_NE(error_of("ebb", call, {{"type", "f64"}}).find("no options"), std::string::npos);
  EXPECT_NE(error_of("a1111", call, {{"generator", "torch_cup"}}).find("'torch_cpu'"),
            std::string::npos);
  EXPECT_NE(error_of("torch_cpu", call, {{"type", "f8"}}).find("unknown number type"),
            std::string::npos);
  NoiseCall seeds = call;
  seeds.seeds = {1, 2};
  EXPECT_NE(error_of("torch_cpu", seeds, {}).find("per_image"), std::string::npos);
  EXPECT_NE(error_of("ebb", call_of({0}, {}), {}).find("shape"), std::string::npos);
  NoiseCall one_level = call;
  one_level.sigmas = {1, 0};
  const Noise path = open_noise("brownian", one_level);
  EXPECT_EQ(start_of(path, one_level).size(), 96u);
  EXPECT_THROW(step_of(path, one_level, 0), Error);
}

TEST(brownian, levels_that_are_one_in_f32__give_finite_numbers) {
  const NoiseCall call = {.shape = {4}, .sigmas = {5, 1, 1 - 1e-9, 0.3, 0}};
  const Noise noise = open_noise("brownian", call);
  std::vector<double> z(4);
  for (const double to : {1.0, 1 - 1e-9}) {
    noise.step(z, {0, 1, to});
    for (const double v : z) EXPECT_TRUE(std::isfinite(v)) << v;
  }
}

TEST(noise_sources, of_dialects__exist) {
  for (const Dialect& d : all_dialects()) EXPECT_EQ(find_noise_source(d.noise).name, d.noise);
}

// ---- rules -----------------------------------------------------------------------------------

TEST(torch_cuda, tensors_within_the_grid__are_nv) {
  const Numbers a = randn({.name = "torch_cuda"}, 1ull << 40, 1000);
  const Numbers b = randn({.name = "nv"}, 1ull << 40, 1000);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6);
}

// A GPU of two blocks: 512 threads, so elements i, i + 512, ... are of one stream.
TEST(torch_cuda, tensors_beyond_the_grid__threads_go_on) {
  const GeneratorKind small{.name = "torch_cuda", .gpu = {.sm_count = 1, .threads = 512}};
  const size_t n = 2 * 4 * 512 + 3;
  Numbers z(n);
  const auto g = make_generator(small, 3);
  g->normal(z);
  const auto words = [](uint32_t call, uint32_t thread) {
    return philox4x32({call, 0, thread, 0}, 3);
  };
  const auto radius = [](uint32_t w) { return std::sqrt(-2 * std::log((w + 0.5) * 0x1p-32)); };
  const auto angle = [](uint32_t w) { return 2 * M_PI * (w + 0.5) * 0x1p-32; };
  const Philox a = words(0, 5), b = words(1, 5), c = words(2, 2);
  EXPECT_NEAR(z[5], radius(a[0]) * std::sin(angle(a[1])), 2e-6);
  EXPECT_NEAR(z[5 + 512], radius(a[0]) * std::cos(angle(a[1])), 2e-6);
  EXPECT_NEAR(z[5 + 3 * 512], radius(a[2]) * std::cos(angle(a[3])), 2e-6);
  EXPECT_NEAR(z[5 + 4 * 512], radius(b[0]) * std::sin(angle(b[1])), 2e-6);
  EXPECT_NEAR(z[n - 1], radius(c[0]) * std::sin(angle(c[1])), 2e-6);
  g->normal(std::span(z).first(1));  // three blocks of words were used
  const Philox d = words(3, 0);
  EXPECT_NEAR(z[0], radius(d[0]) * std::sin(angle(d[1])), 2e-6);
}

TEST(comfy, start_and_steps__cpu_then_the_device) {
  const NoiseCall call = call_of({0, 1}, {192});
  const Noise on_cpu = open_noise("comfy", call, {{"steps", "torch_cpu"}});
  EXPECT_EQ(start_of(on_cpu, call), randn({}, 7, 384));
  EXPECT_EQ(step_of(on_cpu, call, 0), randn({}, 8, 384));
  EXPECT_EQ(step_of(open_noise("comfy", call), call, 0), randn({.name = "torch_cuda"}, 7, 384));
  // Part of a batch: the third picture's first noise, the steps of a batch of one.
  const NoiseCall third = call_of({2}, {192});
  const Numbers three = randn({}, 7, 576);
  const Noise noise = open_noise("comfy", third, {{"steps", "torch_cpu"}});
  EXPECT_EQ(start_of(noise, third), Numbers(three.begin() + 384, three.end()));
  EXPECT_EQ(step_of(noise, third, 0), randn({}, 8, 192));
}

// As specified for later versions of PyTorch; no reference was run.
TEST(torch_cpu, halves_made_from_f32__are_rounded) {
  const Numbers wide = randn({}, 5, 64);
  const Numbers narrow = randn({.type = "bf16_from_f32"}, 5, 64);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(narrow[i], round_to(NoiseType::bf16, wide[i]));
  // 40: 32 and then 16 numbers are drawn, which are the first 48 of a longer tensor.
  const Numbers odd = randn({.type = "bf16_from_f32"}, 5, 40);
  for (size_t i = 24; i < 40; ++i) EXPECT_EQ(odd[i], narrow[i + 8]);
}

TEST(brownian_tree, increments__add_up_in_any_order) {
  const auto normals = [](uint64_t seed, std::span<double> out) {
    make_generator({}, seed)->normal(out);
  };
  constexpr size_t size = 64;
  std::vector<float> ac(size), ab(size), bc(size), again(size);
  BrownianTree tree({0.003, 1}, 9, size, normals);
  tree.increment(0.2, 0.9, ac);
  tree.increment(0.2, 0.51234, ab);
  tree.increment(0.51234, 0.9, bc);
  for (size_t i = 0; i < size; ++i) EXPECT_NEAR(ac[i], ab[i] + bc[i], 2e-6);
  // More queries than the tree keeps values for.
  for (int k = 1; k < 60; ++k) tree.increment(0.01 * k, 0.01 * k + 0.00777, again);
  tree.increment(0.2, 0.9, again);
  EXPECT_EQ(again, ac);
  BrownianTree other({0.003, 1}, 9, size, normals);
  other.increment(0.51234, 0.9, again);
  EXPECT_EQ(again, bc);
}

}  // namespace
}  // namespace ebb
