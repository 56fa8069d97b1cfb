// The side stream: which nodes run on it, what waits for them, and that results have the same bits
// however late it runs.
#include "runtime/side_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/add/op.h"
#include "ops/mse/op.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/silu/op.h"
#include "runtime/plan.h"
#include "support/far_device.h"
#include "support/hashed_weights.h"
#include "train/step.h"

namespace ebb::side_stream_test {
namespace {

using testing::FarDevice;

// Residual blocks x + b silu(a x).
Graph chain(int64_t depth) {
  constexpr int64_t rows = 32, width = 16;
  Graph g;
  const Value target = g.input("target", {DType::f32, {rows, width}});
  Value x = g.input("x", {DType::f32, {rows, width}});
  const auto weight = [&](const std::string& name, Shape shape) {
    return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
  };
  for (int64_t i = 0; i < depth; ++i) {
    const Value a = weight(str("a.", i), {2 * width, width});
    const Value b = weight(str("b.", i), {width, 2 * width});
    x = x + ops::linear(ops::silu(ops::linear(x, a, {})), b, {});
  }
  g.output("loss", ops::mse(x, target));
  return g;
}

Plan training_step(const Graph& loss, const Context& context) {
  Plan plan(train::train_step(loss, {.max_norm = 1}), context);
  for (const nn::Weight& w : testing::weights_of(loss))
    plan.bind(w.name, testing::hashed_weight(w));
  plan.bind_missing();
  return plan;
}

NamedTensors inputs_of_step(const Plan& plan, int64_t step) {
  NamedTensors in = train::step_inputs({.step = step, .lr = 1e-2}, {.max_norm = 1});
  for (const Source& s : plan.graph().sources())
    if (s.kind == Source::Kind::input && !in.contains(s.name))
      in[s.name] = testing::hashed_input(s.name, plan.graph().type(s.value).shape);
  return in;
}

TEST(side_stream_nodes, results_that_are_needed_late__are_on_it_and_outputs_are_not) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 4}});
  const Value late = ops::matmul(x, x), seen = ops::reshape(late, {16});
  Value y = ops::matmul(x, x, {.trans_b = true});
  for (int i = 0; i < 3; ++i) y = ops::matmul(y, x);
  g.output("y", ops::matmul(y, ops::reshape(seen, {4, 4})));
  std::vector<NodeMemory> facts(g.nodes().size());
  for (size_t i = 0; i < facts.size(); ++i)
    facts[i].alias = g.nodes()[i].op == &ops::def::reshape();
  const auto beside = [&](int32_t reach) {
    const auto nodes = side_stream_nodes(g, facts, reach);
    return std::pair(nodes[0], std::ranges::count_if(nodes, [](auto s) { return s.has_value(); }));
  };
  // read through two other views, six nodes later
  EXPECT_EQ(beside(4), std::pair(std::optional(SideStream::compute), std::ptrdiff_t{1}));
  EXPECT_EQ(beside(99).second, 0);
  facts[0].cooperative = true;
  EXPECT_EQ(beside(4).second, 0);
}

TEST(side_stream_nodes, collectives__are_on_their_own) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 4}});
  g.output("y", ops::all_reduce(ops::silu(x), 2));
  const auto nodes = side_stream_nodes(g, std::vector<NodeMemory>(g.nodes().size()), 4);
  EXPECT_EQ(nodes.front(), std::nullopt);
  EXPECT_EQ(nodes.back(), SideStream::collectives);
}

TEST(side_stream_nodes, a_result_that_a_collective_reads__is_needed_when_the_sum_is) {
  const auto first_of = [](bool late) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {4, 4}});
    const Value sum = ops::all_reduce(ops::matmul(x, x), 2);
    Value y = late ? ops::matmul(x, x, {.trans_b = true}) : ops::matmul(x, sum);
    for (int i = 0; i < 5; ++i) y = ops::matmul(y, x);
    g.output("y", ops::matmul(y, sum));
    return side_stream_nodes(g, std::vector<NodeMemory>(g.nodes().size()), 4).front();
  };
  EXPECT_EQ(first_of(true), SideStream::compute);
  EXPECT_EQ(first_of(false), std::nullopt);
}

TEST(side_stream_waits, steps_that_touch_the_same_memory__wait_for_the_last_such_one) {
  static const char memory[40] = {};
  const auto part = [](int i) { return Touched::Range{memory + 10 * i, memory + 10 * i + 10}; };
  const auto step = [&](int read, int write, std::optional<SideStream> side_stream = {}) {
    return Touched{{part(read)}, {part(write)}, side_stream};
  };
  using Waits = std::vector<std::vector<int32_t>>;
  constexpr SideStream compute = SideStream::compute, collectives = SideStream::collectives;
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(1, 2)}), (Waits{{}, {0}}));  // reads it
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(2, 0)}), (Waits{{}, {0}}));  // overwrites
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(2, 1)}), (Waits{{}, {0}}));
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(0, 2)}), (Waits{{}, {}}));
  // the third waits for the second, and with it for the first
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(0, 2, compute), step(2, 3), step(1, 3)}),
            (Waits{{}, {}, {1}, {}}));
  // side streams wait for each other, and the main stream for both
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(1, 2, collectives), step(2, 3)}),
            (Waits{{}, {0}, {1}}));
  EXPECT_EQ(side_stream_waits({step(0, 1, compute), step(0, 2, collectives), step(1, 2)}),
            (Waits{{}, {}, {0, 1}}));
}

TEST(side_stream_waits, kernels_that_run_alone__begin_when_no_collective_runs) {
  static const char memory[40] = {};
  const auto part = [](int i) { return Touched::Range{memory + 10 * i, memory + 10 * i + 10}; };
  const Touched sum{{part(0)}, {part(0)}, SideStream::collectives};
  const Touched spins{{part(1)}, {part(2)}, {}, true}, other{{part(1)}, {part(2)}, {}};
  EXPECT_EQ(side_stream_waits({sum, other, spins, spins}),
            (std::vector<std::vector<int32_t>>{{}, {}, {0}, {}}));
}

TEST(side_stream, weight_gradients_of_a_training_step__are) {
  const auto device = std::make_shared<FarDevice>();
  device->late = true;
  const Plan plan = training_step(chain(6), {.device = device});
  const auto side_stream =
      std::count_if(plan.steps().begin(), plan.steps().end(),
                    [](const Step& s) { return s.side_stream && s.sig.op == &ops::def::matmul(); });
  EXPECT_GE(side_stream, 8);  // of twelve; the last ones are needed at once
}

TEST(side_stream, steps_however_late__are_the_same_bits) {
  const auto late = std::make_shared<FarDevice>();
  late->late = true;
  Plan with = training_step(chain(6), {.device = late});
  Plan without = training_step(chain(6), {.device = std::make_shared<FarDevice>()});
  for (int64_t step = 0; step < 3; ++step) {
    const NamedTensors in = inputs_of_step(with, step);
    const NamedTensors a = with.run(in), b = without.run(in);
    for (const char* name : {"loss", "grad_norm"})
      EXPECT_EQ(a.at(name).span<float>()[0], b.at(name).span<float>()[0]) << name << ' ' << step;
  }
  for (const nn::Weight& w : testing::weights_of(chain(6))) {
    const Tensor a = with.fetch(w.name), b = without.fetch(w.name);
    const auto x = a.span<float>(), y = b.span<float>();
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin())) << w.name;
  }
}

}  // namespace
}  // namespace ebb::side_stream_test
