// The generators and sources against numbers of the programs that they follow.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <tuple>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/noise/noise.h"
#include "diffusion/noise/rng/brownian_tree.h"
#include "diffusion/noise/rng/generator.h"
#include "diffusion/noise/rng/seed_sequence.h"
#include "diffusion/noise/rng/variation.h"
#include "support/golden_file.h"

namespace ebb::golden_test {
namespace {

using nlohmann::json;
using testing::read_golden;

// f32 normals of PyTorch come from approximations of log, sin and cos that change with the machine.
constexpr double f32_error = 1e-6;

std::vector<json> cases(const std::string& kind) {
  std::vector<json> out;
  const json golden = read_golden("samplers/noise");
  for (const json& c : golden["cases"])
    if (c["kind"] == kind) out.push_back(c);
  EXPECT_FALSE(out.empty()) << kind;
  return out;
}

uint64_t seed_of(const json& text) { return std::stoull(text.get<std::string>()); }

std::vector<double> numbers(const json& list) { return list.get<std::vector<double>>(); }

double largest_difference(std::span<const double> a, std::span<const double> b) {
  EXPECT_EQ(a.size(), b.size());
  double out = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

// Short results are whole in the file; of long ones there are both ends and four sums.
void expect_result(std::span<const double> z, const json& want, double error) {
  if (want.contains("values")) {
    EXPECT_LE(largest_difference(z, numbers(want["values"])), error);
    return;
  }
  const std::vector<double> first = want["first"], last = want["last"], sums = want["sums"];
  EXPECT_LE(largest_difference(z.first(first.size()), first), error);
  EXPECT_LE(largest_difference(z.last(last.size()), last), error);
  double got[4] = {};
  for (size_t i = 0; i < z.size(); ++i) {
    const auto at = static_cast<double>(i);
    got[0] += z[i];
    got[1] += z[i] * z[i];
    got[2] += z[i] * std::sin(at);
    got[3] += z[i] * std::cos(3 * at);
  }
  // Errors of n numbers, should they all point the same way.
  for (size_t k = 0; k < 4; ++k)
    EXPECT_NEAR(got[k], sums[k], 4 * error * static_cast<double>(z.size()));
}

void expect_calls(Generator& generator, const json& c, double error) {
  for (const json& call : c["calls"]) {
    std::vector<double> z(call["n"].get<size_t>());
    generator.normal(z);
    if (c.contains("note"))  // after a call like it one that is not contiguous: number by number
      for (double& v : z) generator.normal({&v, 1});
    SCOPED_TRACE(c.dump().substr(0, 80));
    expect_result(z, call, error);
  }
}

TEST(seed_sequence, numpy__same_words) {
  for (const json& c : cases("seed_sequence")) {
    SeedSequence s{.spawn_key = c["spawn_key"], .pool_size = c["pool_size"]};
    const json entropy = json::parse(c["entropy"].get<std::string>());
    if (entropy.is_array())
      s.entropy = entropy.get<std::vector<uint64_t>>();
    else
      s.entropy = {entropy.get<uint64_t>()};
    const std::vector<uint32_t> want = c["state"];
    EXPECT_EQ(s.generate(want.size()), want) << c.dump();
  }
}

TEST(philox, cases__same_words) {
  for (const json& c : cases("philox")) {
    const uint64_t low = c["key"][0], high = c["key"][1];
    EXPECT_EQ(philox4x32(c["counter"].get<Philox>(), high << 32 | low), c["out"].get<Philox>());
  }
}

// The counter of cuRAND's thread `subsequence` after `offset` words.
Philox counter_of(const json& c) {
  const uint64_t stream = seed_of(c["subsequence"]), call = c["offset"].get<uint64_t>() / 4;
  return {static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32),
          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
}

TEST(torch_cuda, curand__same_words_and_normals) {
  const json golden = read_golden("samplers/noise_curand");
  // A GPU of four blocks: a tensor of four numbers a thread.
  constexpr size_t threads = 1024;
  const GpuOptions gpu{.sm_count = 4, .threads = 256};
  for (const json& c : golden["cases"]) {
    SCOPED_TRACE(c.dump());
    const uint64_t seed = seed_of(c["seed"]), thread = seed_of(c["subsequence"]);
    EXPECT_EQ(philox4x32(counter_of(c), seed), c["words"].get<Philox>());
    if (thread >= threads) continue;
    for (const auto& [type, key, error] :
         {std::tuple{"f32", "normal4", f32_error}, std::tuple{"f64", "normal2_double", 1e-14}}) {
      const std::vector<double> want = numbers(c[key]);
      const auto g = make_generator({.name = "torch_cuda", .type = type, .gpu = gpu}, seed);
      std::vector<double> z(threads * want.size());
      for (uint64_t words = 0; words <= c["offset"].get<uint64_t>(); words += 4) g->normal(z);
      for (size_t k = 0; k < want.size(); ++k)
        EXPECT_NEAR(z[thread + k * threads], want[k], error * std::max(1.0, std::abs(want[k])));
    }
  }
}

TEST(nv, curand__same_normals) {
  const json golden = read_golden("samplers/noise_curand");
  for (const json& c : golden["cases"]) {
    const uint64_t thread = seed_of(c["subsequence"]);
    if (thread > 1000) continue;
    const auto g = make_generator({.name = "nv"}, seed_of(c["seed"]));
    std::vector<double> z(thread + 1);
    for (uint64_t words = 0; words <= c["offset"].get<uint64_t>(); words += 4) g->normal(z);
    EXPECT_NEAR(z[thread], c["normal4"][0].get<double>(), 6e-7) << c.dump();
  }
}

TEST(mt19937, words__are_those_that_torch_cpu_draws_from) {
  for (const json& c : cases("mt19937")) {
    std::mt19937 words(c["seed"].get<uint32_t>());
    std::vector<uint32_t> all(2000);
    for (uint32_t& w : all) w = static_cast<uint32_t>(words());
    for (const auto& [key, at] :
         {std::pair{"first", 0}, std::pair{"at_623", 623}, std::pair{"at_1998", 1998}}) {
      const std::vector<uint32_t> want = c[key];
      EXPECT_EQ(std::vector<uint32_t>(all.begin() + at,
                                      all.begin() + at + static_cast<int64_t>(want.size())),
                want)
          << key;
    }
    // 24 bits of a word are a uniform number, of which PyTorch's blocks of 16 make normals: the
    // k-th of the second half is the angle of the k-th of the first.
    const auto uniform = [&](size_t i) { return static_cast<float>(all[i] & 0xFFFFFF) * 0x1p-24F; };
    std::vector<double> z(16);
    make_generator({.name = "torch_cpu"}, c["seed"].get<uint32_t>())->normal(z);
    for (size_t k = 0; k < 8; ++k) {
      const double radius = std::sqrt(-2 * std::log(static_cast<double>(1 - uniform(k))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(uniform(k + 8));
      EXPECT_NEAR(z[k], radius * std::cos(angle), 1e-5);
      EXPECT_NEAR(z[k + 8], radius * std::sin(angle), 1e-5);
    }
  }
}

TEST(torch_cpu, randn__same_numbers) {
  const std::map<std::string, std::pair<std::string, double>> types = {
      {"float32", {"f32", f32_error}},
      {"float64", {"f64", 1e-8}},  // nine digits in the file
      {"float16", {"f16", 1e-8}},
      {"bfloat16", {"bf16", 1e-8}}};
  for (const json& c : cases("randn")) {
    const auto& [type, error] = types.at(c["dtype"]);
    const auto g = make_generator({.name = "torch_cpu", .type = type}, seed_of(c["seed"]));
    expect_calls(*g, c, error);
  }
}

TEST(nv, calls__same_numbers) {
  for (const json& c : cases("nv"))
    expect_calls(*make_generator({.name = "nv"}, seed_of(c["seed"])), c, 1e-7 * 6);
}

TEST(brownian, torchsde__same_increments) {
  for (const json& c : cases("brownian")) {
    NoiseCall call{.sigmas = {c["sigma_max"], c["sigma_min"], 0}};
    const bool each = c["seed"].is_array();
    const std::vector<int64_t> shape = c["shape"];
    int64_t size = 1;
    for (const int64_t d : shape) size *= d;
    if (each)
      call.seeds = c["seed"].get<std::vector<uint64_t>>();
    else
      call.seed = c["seed"];
    call.shape = {size / call.batch()};
    const Noise noise = open_noise("brownian", call, {{"per_image", each ? "true" : "false"}});
    std::vector<double> z(static_cast<size_t>(size));
    for (const json& q : c["queries"]) {
      noise.step(z, {0, q["from"], q["to"]});
      EXPECT_LE(largest_difference(z, numbers(q["values"])), 1e-5) << q.dump();
    }
  }
}

TEST(slerp, cases__same_numbers) {
  for (const json& c : cases("slerp")) {
    const NoisePlanes shape{c["shape"][0], c["shape"][1], c["shape"][2]};
    const std::vector<double> low = c["low"], high = c["high"];
    const std::vector<double> z = slerp(c["strength"], low, high, shape);
    // Of opposite columns the reference makes what rounding leaves, some of it not finite.
    const bool opposite = c["values"].dump().find("nan") != std::string::npos;
    for (size_t i = 0; i < z.size(); ++i) {
      EXPECT_TRUE(std::isfinite(z[i])) << i;
      if (opposite) continue;
      EXPECT_NEAR(z[i], c["values"][i].get<double>(), 2e-6) << i;
    }
  }
}

TEST(slerp, columns_on_one_line__are_mixed_along_it) {
  const NoisePlanes shape{1, 2, 4};
  // Columns: the same by rounding, one of zeros, opposite, at right angles.
  const std::vector<double> low = {0.1, 0, 1, 1, 0.7, 0, 2, 0};
  const std::vector<double> high = {0.3, 2, -1, 0, 2.1, 4, -2, 1};
  const std::vector<double> z = slerp(0.25, low, high, shape);
  const double diagonal[] = {std::sin(3 * std::numbers::pi / 8), std::sin(std::numbers::pi / 8)};
  const double want[] = {0.15, 0.5, 0.5, diagonal[0], 1.05, 1, 1, diagonal[1]};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(z[i], want[i], 1e-7) << i;
}

// [N,H,W,C] as [N,C,H,W].
std::vector<double> channels_first(const std::vector<double>& x, const std::vector<int64_t>& chw) {
  const auto c = static_cast<size_t>(chw[0]), cells = static_cast<size_t>(chw[1] * chw[2]);
  std::vector<double> out;
  for (size_t n = 0; n < x.size() / c / cells; ++n)
    for (size_t k = 0; k < c; ++k)
      for (size_t i = 0; i < cells; ++i) out.push_back(x[(n * cells + i) * c + k]);
  return out;
}

TEST(a1111, first_and_second__same_numbers) {
  for (const json& c : cases("image_rng")) {
    const std::vector<int64_t> chw = c["shape"];
    const NoiseCall call{.seeds = c["seeds"], .shape = {chw[1], chw[2], chw[0]}};
    OptionTexts options = {{"generator", c["source"] == "NV" ? "nv" : "torch_cpu"},
                           {"ensd", c["eta_noise_seed_delta"].dump()}};
    if (c.contains("subseeds")) options.push_back({"subseed", c["subseeds"][0].dump()});
    if (c.contains("subseed_strength"))
      options.push_back({"subseed_strength", c["subseed_strength"].dump()});
    if (c.contains("seed_resize_from_h")) {
      options.push_back({"resize_height", str(c["seed_resize_from_h"].get<int64_t>() / 8)});
      options.push_back({"resize_width", str(c["seed_resize_from_w"].get<int64_t>() / 8)});
    }
    const Noise noise = open_noise("a1111", call, options);
    std::vector<double> z(static_cast<size_t>(call.batch() * call.elements()));
    SCOPED_TRACE(c.dump().substr(0, 220));
    noise.start(z);
    EXPECT_LE(largest_difference(channels_first(z, chw), numbers(c["first"])), 2e-6);
    noise.step(z, {0, 2, 1});
    EXPECT_LE(largest_difference(channels_first(z, chw), numbers(c["second"])), f32_error);
  }
}

}  // namespace
}  // namespace ebb::golden_test
