// Plans made to fit: what the flag means, the fewest blocks, and a run that goes on with others.
#include "runtime/fit.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "io/safetensors.h"
#include "nn/params.h"
#include "ops/add/op.h"
#include "ops/mse/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/silu/op.h"
#include "support/far_device.h"
#include "support/files.h"
#include "train/loop.h"
#include "train/step.h"

namespace ebb::train::fit_test {
namespace {

using testing::expect_error;

constexpr int64_t batch = 512, width = 8, blocks = 8;

// Eight residual blocks whose hidden layers are most of a step's memory.
Graph toy_loss(nn::Weights* weights = nullptr) {
  Graph g;
  const nn::WeightSpec spec{.init = "normal", .scale = 0.3};
  const Value images = g.input("images", {DType::f32, {batch, width}});
  Value x = images;
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string path = str("blocks.", i);
    const AtScope at(g, path);
    const auto weight = [&](const char* name, const Shape& shape) {
      return nn::Params(g, path, weights).param(name, shape, spec);
    };
    const Value h = ops::silu(ops::linear(x, weight("a", {4 * width, width}), {}));
    x = x + ops::linear(h, weight("b", {width, 4 * width}), {});
  }
  g.output("loss", ops::mse(x, images));
  return g;
}

Context cpu() { return open_context("cpu", {.threads = 1}); }

Plan toy_plan(const Recompute& r, const Context& context) {
  return Plan(train_step(toy_loss(), {}), context, {.recompute = r});
}

Plan toy_plan_in(int64_t bytes) {
  return toy_plan({.kind = Recompute::Kind::fit, .bytes = bytes}, cpu());
}

// What is computed twice, expressions and blocks.
int64_t recomputed_nodes(const Plan& p) { return p.recomputed().pointwise + p.recomputed().blocks; }

int64_t bytes_of(const Plan& p) { return p.arena_bytes() + p.source_bytes(); }

TEST(parse_recompute, words_and_sizes__are_understood) {
  using Kind = Recompute::Kind;
  EXPECT_EQ(parse_recompute("off").kind, Kind::off);
  EXPECT_EQ(parse_recompute("pointwise").kind, Kind::pointwise);
  EXPECT_EQ(parse_recompute("all").kind, Kind::all);
  EXPECT_EQ(parse_recompute("auto").kind, Kind::fit);
  EXPECT_EQ(parse_recompute("auto").bytes, 0);
  EXPECT_EQ(parse_recompute("8GB").bytes, 8000000000);
  EXPECT_EQ(parse_recompute("1.5MB").bytes, 1500000);
  EXPECT_EQ(parse_recompute("8gb").bytes, 8000000000);
  EXPECT_EQ(parse_recompute("ALL").kind, Kind::all);
  for (const char* bad : {"", "8", "GB", "-1GB", "0GB", "8 gigs", "8kB", "nan", "1e30GB", "infGB"})
    expect_error([&] { parse_recompute(bad); },
                 "recompute: must be off, pointwise, all, auto or a size like 8GB or 500MB (");
  expect_error([] { parse_recompute("al"); }, "(did you mean 'all'?)");
}

TEST(fit, sizes__are_met_with_the_least_computed_twice) {
  const int64_t off = bytes_of(toy_plan({}, cpu()));
  const Plan all = toy_plan(parse_recompute("all"), cpu());
  EXPECT_EQ(all.recomputed().blocks, blocks);
  EXPECT_EQ(recomputed_nodes(toy_plan_in(off)), 0);
  int64_t before = 0;
  for (int64_t bytes = off; bytes >= bytes_of(all); bytes -= off / 40) {
    const Plan p = toy_plan_in(bytes);
    EXPECT_LE(bytes_of(p), bytes);
    EXPECT_GE(recomputed_nodes(p), before);
    before = recomputed_nodes(p);
  }
  EXPECT_GE(before, blocks / 2);
}

TEST(fit, expressions__come_before_blocks) {
  const Plan all = toy_plan(parse_recompute("pointwise"), cpu());
  EXPECT_EQ(all.recomputed(), (RecomputeCount{.pointwise = blocks, .blocks = 0}));
  EXPECT_EQ(toy_plan_in(bytes_of(all)).recomputed().blocks, 0);
  EXPECT_GT(toy_plan_in(bytes_of(all) - 1).recomputed().blocks, 0);
}

TEST(fit, one_byte_less__takes_one_more) {
  const Plan two = toy_plan_in(bytes_of(toy_plan({}, cpu())) * 8 / 10);
  EXPECT_EQ(toy_plan_in(bytes_of(two)).recomputed(), two.recomputed());
  EXPECT_EQ(recomputed_nodes(toy_plan_in(bytes_of(two) - 1)), recomputed_nodes(two) + 1);
}

TEST(fit, size_that_is_too_small__is_an_error_that_says_what_is_needed) {
  expect_error(
      [] { toy_plan_in(100000); },
      "recompute: a run does not fit into 0 MB: with all 8 blocks computed again it needs");
}

// A size is what a run takes of the device: the driver's share is the run's, and what sources are
// rounded up by.
TEST(fit, size__counts_what_the_driver_takes_and_allocations_are_rounded_by) {
  const auto device = std::make_shared<testing::FarDevice>();
  device->driver = {.first = 5'000'000, .now = 9'000'000};
  device->unit = 4096;
  const auto plan_in = [&](int64_t bytes) {
    return toy_plan({.kind = Recompute::Kind::fit, .bytes = bytes}, {.device = device});
  };
  const Plan off = toy_plan({}, {.device = device});
  int64_t bytes = bytes_of(off) + device->driver.first;
  for (const Source& s : off.graph().sources())
    if (const int64_t own = off.graph().type(s.value).bytes(); s.kind != Source::Kind::input)
      bytes += device->rounded(own) - own;
  ASSERT_GT(bytes, bytes_of(off) + device->driver.first);
  EXPECT_EQ(recomputed_nodes(plan_in(bytes)), 0);
  EXPECT_GT(recomputed_nodes(plan_in(bytes - 1)), 0);
  expect_error([&] { plan_in(device->driver.first); }, " MB (driver 5 MB); ");
}

TEST(fit, auto__uses_the_free_memory_of_the_device) {
  const int64_t off = bytes_of(toy_plan({}, cpu()));
  for (const int64_t percent : {100, 80, 70}) {
    const int64_t free = off * percent / 100 * 10 / 9 + 100;
    const auto device = std::make_shared<testing::FarDevice>(free);
    Plan p = toy_plan(parse_recompute("auto"), {.device = device});
    EXPECT_EQ(recomputed_nodes(p) > 0, percent < 100);
    EXPECT_LE(bytes_of(p), free);
    p.bind_missing();
    NamedTensors in = step_inputs({.lr = 0.1}, {});
    in["images"] = Tensor(DType::f32, {batch, width});
    EXPECT_NO_THROW(p.run(in));  // it does fit
  }
}

TEST(fit, auto_that_cannot_do__recomputes_all) {
  const auto device = std::make_shared<testing::FarDevice>(200000);
  EXPECT_EQ(toy_plan(parse_recompute("auto"), {.device = device}).recomputed().blocks, blocks);
}

TEST(fit, graph_without_a_loss__is_an_error) {
  Graph g;
  g.output("y", ops::silu(g.input("x", {DType::f32, {4}})));
  expect_error([&] { Plan(g, cpu(), {.recompute = parse_recompute("all")}); },
               "recompute: no output 'loss'");
}

// ---- runs ----------------------------------------------------------------------------------

TrainJob toy_job(const std::string& out, const std::string& recompute) {
  TrainJob job{.config = {.out = out,
                          .steps = 6,
                          .batch = batch,
                          .dtype = "f32",
                          .recompute = recompute,
                          .checkpoint_every = 3},
               .info = {.model = "toy"},
               .loss = {}};
  job.loss = toy_loss(&job.weights);
  job.batches = [](int64_t first) -> NextBatch {
    return [part = first]() mutable {
      Tensor images(DType::f32, {batch, width});
      fill_normal({.seed = static_cast<uint64_t>(part++)}, 0, images.span<float>());
      return NamedTensors{{"images", images}};
    };
  };
  return job;
}

std::map<std::string, std::string> weights(const std::string& file) {
  std::map<std::string, std::string> out;
  const auto f = io::TensorFile::open(file);
  for (const auto& e : f.entries()) {
    const Tensor t = f.load(e);
    out[e.name] = {static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())};
  }
  return out;
}

TEST(train, run_resumed_with_recomputed_blocks__gives_the_same_bits) {
  const testing::Folder folder;
  const std::string whole = folder / "whole", broken = folder / "broken";
  train(toy_job(whole, "off"), cpu());
  TrainJob first = toy_job(broken, "off");
  first.hooks.stop = [n = 0]() mutable { return ++n == 3; };
  train(std::move(first), cpu());
  TrainJob rest = toy_job(broken, "all");
  rest.config.resume = true;
  std::string said;
  rest.hooks.log = [&](std::string_view line) { said += line; };
  train(std::move(rest), cpu());
  EXPECT_NE(said.find("and 8 blocks computed twice"), std::string::npos) << said;
  EXPECT_EQ(weights(model_file(whole, 6)), weights(model_file(broken, 6)));
  EXPECT_EQ(weights(state_file(whole, 6)), weights(state_file(broken, 6)));
  const auto config = testing::file_bytes(broken + "/config.json");
  EXPECT_NE(config.find("\"recompute\": \"all\""), std::string::npos) << config;
}

}  // namespace
}  // namespace ebb::train::fit_test
