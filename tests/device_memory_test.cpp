// Memory of a device that contexts count, and what plans take and give back of it.
#include "runtime/device_memory.h"

#include <gtest/gtest.h>

#include "nn/ops.h"
#include "runtime/plan.h"
#include "support/far_device.h"

namespace ebb::testing::device_memory_test {

// Of a concatenation, which merged products read, each part is cast in its place. f32 files of DiT
// are read so with little more memory than their weights have in 16 bits.
TEST(device_memory, preparing__takes_a_tenth_more_than_the_weights_in_16_bits) {
  constexpr int64_t blocks = 24, side = 256;  // large beside what kernels take for themselves
  const Type weight{DType::f32, {side, side}};
  WeightStore::Weights weights;
  Graph g;
  const Value x = g.input("x", {DType::f32, {1, side}});
  Value sum = x;
  std::vector<Value> merged;
  for (int64_t i = 0; i < blocks; ++i) {
    for (const char* kind : {"adaln.", "fc."})
      weights.emplace(str(kind, i), stored_tensor(Tensor(DType::f32, {side, side})));
    merged.push_back(
        ops::cast(g.source(Source::Kind::param, str("adaln.", i), weight), DType::bf16));
    sum = ops::cast(
        ops::linear(ops::cast(sum, DType::bf16),
                    ops::cast(g.source(Source::Kind::param, str("fc.", i), weight), DType::bf16)),
        DType::f32);
  }
  g.output("y", ops::linear(ops::cast(x, DType::bf16), ops::concat(merged, 0)));
  g.output("sum", sum);
  const auto store = std::make_shared<WeightStore>(std::move(weights));
  const auto device = std::make_shared<FarDevice>();
  const Context context{.device = device};
  Plan plan(g, context, {.weights = store});
  const PlanNeeds needs = plan.needs();
  plan.run({{"x", Tensor(DType::f32, {1, side})}});
  constexpr int64_t in_bf16 = 2 * blocks * side * side * 2;
  EXPECT_EQ(needs.weights.bytes(), in_bf16);
  EXPECT_LT(context.memory->peak(), in_bf16 * 11 / 10);
  EXPECT_LT(context.memory->peak(), needs.bytes() * 103 / 100);
  EXPECT_GT(context.memory->peak(), needs.bytes() * 97 / 100);
}

// Each weight has an allocation of its own, which a device may round.
TEST(device_memory, needs__have_weights_as_the_device_rounds_them) {
  WeightStore::Weights weights;
  Graph g;
  for (const char* name : {"w", "v"}) {
    weights.emplace(name, stored_tensor(Tensor(DType::f32, {16, 16})));
    g.output(name, ops::linear(g.input(str("x", name), {DType::f32, {3, 16}}),
                               g.source(Source::Kind::param, name, {DType::f32, {16, 16}})));
  }
  const auto store = std::make_shared<WeightStore>(std::move(weights));
  const auto device = std::make_shared<FarDevice>();
  device->unit = 1500;
  const Plan plan(g, {.device = device}, {.weights = store});
  EXPECT_EQ(plan.needs().weights.bytes(), 2 * 1500) << "of 1,024 each";
}

// What release() gives back is what a run takes, and another run gives the same.
TEST(device_memory, release__gives_back_all_that_a_run_takes) {
  Tensor w(DType::f32, {16, 16});
  std::ranges::fill(w.span<float>(), 0.5f);
  const auto store = std::make_shared<WeightStore>(WeightStore::Weights{{"w", stored_tensor(w)}});
  Graph g;
  const Value weight = g.source(Source::Kind::param, "w", {DType::f32, {16, 16}});
  g.output("y", ops::linear(g.input("x", {DType::f32, {3, 16}}), weight * 2.0));
  const Context context{.device = std::make_shared<FarDevice>()};
  Plan plan(g, context, {.weights = store});
  const int64_t needed = plan.missing_bytes();
  const auto run = [&] {
    Tensor x(DType::f32, {3, 16});
    std::ranges::fill(x.span<float>(), 1.0f);
    const Tensor y = plan.run({{"x", x}}).at("y");
    return std::vector<float>(y.span<float>().begin(), y.span<float>().end());
  };
  const std::vector<float> first = run();
  EXPECT_GT(context.memory->used(), 16 * 16 * 4);
  EXPECT_LE(context.memory->used(), needed);
  plan.release();
  store->drop_unused(*context.device);
  EXPECT_EQ(context.memory->used(), 0);
  EXPECT_EQ(plan.missing_bytes(), needed);
  EXPECT_EQ(run(), first);
}

TEST(device_memory, limit__is_kept_and_what_was_let_go_counts_no_more) {
  const Context context{.device = std::make_shared<FarDevice>()};
  context.memory->set_limit(1000);
  auto first = context.allocate(600);
  EXPECT_EQ(context.free_memory(), 400);
  EXPECT_THROW(context.allocate(500), OutOfMemory);
  first = nullptr;
  const auto second = context.allocate(900);
  EXPECT_EQ(context.memory->used(), 900);
  EXPECT_EQ(context.memory->peak(), 900);
}

}  // namespace ebb::testing::device_memory_test
