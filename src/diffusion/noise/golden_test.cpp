// The generators and sources against numbers of the programs that they follow.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "diffusion/noise/noise.h"
#include "diffusion/noise/rng/brownian_tree.h"
#include "diffusion/noise/rng/generator.h"
#include "diffusion/noise/rng/seed_sequence.h"
#include "diffusion/noise/rng/variation.h"
#include "support/golden_file.h"

namespace ebb {
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
    if (c["values"].dump().find("nan") != std::string::npos) continue;  // opposite columns
    const std::vector<double> low = c["low"], high = c["high"], want = c["values"];
    EXPECT_LE(largest_difference(slerp(c["strength"], low, high, shape), want), 2e-6);
  }
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
}  // namespace ebb
