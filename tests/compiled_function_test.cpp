// Compiled functions: the bits of a plan, in memory of the caller, from several threads at once.
#include "runtime/compiled_function.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backends.h"
#include "base/random.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/rms_norm/op.h"
#include "ops/softmax/op.h"
#include "runtime/plan.h"

namespace ebb::compiled_function_test {
namespace {

constexpr int64_t rows = 37, columns = 129;

// normed = rms_norm(x, gamma); mixed = softmax(normed) * x, of which the softmax needs a workspace
// where it is a node of its own.
Graph normed_and_mixed() {
  Graph g;
  const Value x = g.input("x", {DType::f32, {rows, columns}});
  const Value gamma = g.input("gamma", {DType::f32, {columns}});
  const Value normed = ops::rms_norm(x, gamma, {});
  const Value weights = ops::softmax(ops::reshape(normed, {columns, rows}));
  const Value mixed =
      ops::map({ops::reshape(weights, {rows, columns}), x}, [](auto v) { return v[0] * v[1]; });
  g.output("normed", normed);
  g.output("mixed", mixed);
  return g;
}

Tensor noise(const Type& type, uint64_t seed) {
  Tensor t(type);
  const auto v = t.span<float>();
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = uniform_from(random_block({.seed = seed}, i)[0]) * 2 - 1;
  return t;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

// One caller: its memory on the device.
struct Caller {
  Caller(const CompiledFunction& f, Device& d, uint64_t seed) : function(f), device(d) {
    for (const Type& t : f.inputs()) {
      host.push_back(noise(t, seed++));
      in.emplace_back(t, device.allocate(t.bytes()));
      device.copy(host.back(), in.back());
    }
    for (const Type& t : f.outputs()) out.emplace_back(t, device.allocate(t.bytes()));
    workspace = device.allocate(f.workspace_bytes());
  }
  void call() {
    std::vector<void*> from, to;
    for (const Tensor& t : in) from.push_back(t.raw());
    for (const Tensor& t : out) to.push_back(t.raw());
    function.run({from, to, workspace->data()});
  }
  Tensor result(size_t i) {
    Tensor t(out[i].type());
    device.copy(out[i], t);
    return t;
  }

  const CompiledFunction& function;
  Device& device;
  std::vector<Tensor> host, in, out;
  std::shared_ptr<Buffer> workspace;
};

class CompiledFunctionOn : public test::OnEachBackend {};

TEST_P(CompiledFunctionOn, gives_the_bits_of_a_plan_to_every_thread) {
  const Graph g = normed_and_mixed();
  const CompiledFunction f(g, context_);
  ASSERT_EQ(f.inputs().size(), 2u);
  ASSERT_EQ(f.outputs().size(), 2u);
  // on a GPU threads need streams of their own: backend/cuda/device/streams_test.cpp
  const size_t threads = context_.device->on_host() ? 4 : 1;
  std::vector<std::unique_ptr<Caller>> callers;
  for (size_t i = 0; i < threads; ++i)
    callers.push_back(std::make_unique<Caller>(f, *context_.device, 100 * i));
  {
    std::vector<std::jthread> running;
    for (const auto& caller : callers)
      running.emplace_back([&c = *caller] {
        for (int k = 0; k < 20; ++k) c.call();
      });
  }
  Plan plan(g, context_);
  for (const auto& c : callers) {
    const NamedTensors expected = plan.run({{"x", c->host[0]}, {"gamma", c->host[1]}});
    EXPECT_TRUE(same(c->result(0), expected.at("normed")));
    EXPECT_TRUE(same(c->result(1), expected.at("mixed")));
  }
}

// Ranges of memory are outputs as any others.
TEST_P(CompiledFunctionOn, gives_slices_and_concatenations) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 64}});
  const Value a = ops::map({x}, [](auto v) { return -v[0]; });
  const Value b = ops::map({x}, [](auto v) { return v[0] * 2.0; });
  g.output("of_input", ops::slice(x, 0, 1, 3));
  g.output("a", a);
  g.output("joined", ops::concat({a, b}, 0));
  g.output("rows", ops::slice(b, 0, 2, 3));
  const CompiledFunction f(g, context_);
  Caller c(f, *context_.device, 7);
  c.call();
  const auto v = c.host[0].span<float>();
  const Tensor of_input = c.result(0), minus = c.result(1), joined = c.result(2),
               rows = c.result(3);
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(minus.span<float>()[i], -v[i]);
    EXPECT_EQ(joined.span<float>()[i], -v[i]);
    EXPECT_EQ(joined.span<float>()[256 + i], 2 * v[i]);
    if (i < 128) {
      EXPECT_EQ(of_input.span<float>()[i], v[64 + i]);
    }
    if (i < 64) {
      EXPECT_EQ(rows.span<float>()[i], 2 * v[128 + i]);
    }
  }
}

TEST_P(CompiledFunctionOn, copies_outputs_that_are_inputs_or_others_and_refuses_states) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {5}});
  g.output("y", x);
  const CompiledFunction f(g, context_);
  Caller c(f, *context_.device, 1);
  c.call();
  EXPECT_TRUE(same(c.result(0), c.host[0]));
  EXPECT_THROW(f.run({}), Error);

  Graph twice;
  const Value once = ops::map({twice.input("x", {DType::f32, {5}})}, [](auto v) { return -v[0]; });
  twice.output("y", once);
  twice.output("z", once);
  const CompiledFunction negated(twice, context_);
  Caller two(negated, *context_.device, 2);
  two.call();
  EXPECT_EQ(two.result(0).span<float>()[3], -two.host[0].span<float>()[3]);
  EXPECT_TRUE(same(two.result(0), two.result(1)));
  Graph with_state;
  with_state.output("y", with_state.source(Source::Kind::param, "w", {DType::f32, {5}}));
  EXPECT_THROW(CompiledFunction(with_state, context_), Error);
}

INSTANTIATE_TEST_SUITE_P(cpu, CompiledFunctionOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, CompiledFunctionOn, ::testing::ValuesIn(test::only("cuda")));

}  // namespace
}  // namespace ebb::compiled_function_test
