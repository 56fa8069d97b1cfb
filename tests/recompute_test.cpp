// Activations computed again: the same bits as without, in less memory, on chains and on networks.
#include "passes/schedule/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends.h"
#include "diffusion/loss.h"
#include "models/model.h"
#include "ops/add/op.h"
#include "ops/loop/op.h"
#include "ops/mse/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "passes/views/elide_copies.h"
#include "runtime/plan.h"
#include "support/graphs.h"
#include "support/hashed_weights.h"
#include "train/step.h"

namespace ebb::recompute_test {
namespace {

using test::count;

Value gated(Value x, Value h, Value gate) {
  return ops::map({x, h, gate}, [](auto v) { return v[0] + v[1] * v[2]; });
}

// x + linear(silu(linear(x))), `depth` times, each in the scope <scope>.<i>. The sum is computed in
// the scope itself, the products below it. With a gate times the second product, the backward pass
// wants this as well: then each block's sum is an expression of what it reads. Gates are some
// columns of a param.
Graph chain(int64_t depth, const std::string& scope = "blocks", bool gate = false) {
  constexpr int64_t rows = 64, width = 16;
  Graph g;
  const auto param = [&](const std::string& name, Shape shape) {
    return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
  };
  const Value target = g.input("target", {DType::f32, {rows, width}});
  Value x = g.input("x", {DType::f32, {rows, width}});
  for (int64_t i = 0; i < depth; ++i) {
    const std::string path = str(scope, ".", i);
    const AtScope at(g, path);
    Value h;
    {
      const AtScope below(g, path + ".fc1");
      h = ops::linear(x, param(path + ".fc1.weight", {4 * width, width}), {});
    }
    h = ops::silu(h);
    {
      const AtScope below(g, path + ".fc2");
      h = ops::linear(h, param(path + ".fc2.weight", {width, 4 * width}), {});
    }
    x = gate ? gated(x, h, ops::slice(param(path + ".gate", {1, 3 * width}), 1, width, 2 * width))
             : x + h;
  }
  g.output("loss", ops::mse(x, target));
  return g;
}

Graph chain_gradients(int64_t depth, const std::string& scope = "blocks", bool gate = false) {
  const Graph loss = chain(depth, scope, gate);
  return gradients(loss, "loss", train::trained_params(loss));
}

RecomputeCount most_of(const Graph& g) { return Recomputable(g, "loss").most(); }

TEST(recompute, modules_of_a_chain__are_its_blocks) {
  EXPECT_EQ(most_of(chain_gradients(5)).blocks, 5);
  EXPECT_EQ(most_of(chain_gradients(5, "a.network.of.scopes")).blocks, 5);
}

TEST(recompute, network_in_a_scope_of_its_own__is_not_one_block) {
  Graph loss = chain(4, "net");
  Graph scoped;  // the same with one node at "net"
  Rewriter rw(loss);
  rw.copy_sources();
  for (const Node& n : loss.nodes()) {
    Node copy = n;
    if (&n == &loss.nodes().front()) copy.at = "net";
    rw.copy(copy);
  }
  rw.copy_ends();
  scoped = rw.take();
  const Graph g = gradients(scoped, "loss", train::trained_params(scoped));
  EXPECT_EQ(most_of(g).blocks, 4);
}

TEST(recompute, first_blocks__are_recomputed_and_the_others_are_not) {
  const Graph g = chain_gradients(5);
  EXPECT_EQ(Recomputable(g, "loss").with({}).graph.nodes().size(), g.nodes().size());
  for (const int64_t blocks : {1, 3, 5, 99}) {
    const Recomputed again = Recomputable(g, "loss").with({.blocks = blocks});
    const int64_t most = std::min<int64_t>(blocks, 5);
    // the first product of a block is wanted again, the second one's result is not
    EXPECT_EQ(count(again.graph, ops::def::matmul()), count(g, ops::def::matmul()) + most);
    std::set<std::string> at;
    for (size_t i = 0; i < again.origin.size(); ++i) {
      const Node& now = again.graph.nodes()[i];
      const Node& before = g.nodes()[again.origin[i]];
      EXPECT_EQ(now.op, before.op);
      EXPECT_EQ(now.at, before.at);
      if (std::count(again.origin.begin(), again.origin.end(), again.origin[i]) == 2)
        at.insert(now.at.substr(0, 8));
    }
    EXPECT_EQ(at.size(), static_cast<size_t>(most));
    EXPECT_TRUE(at.contains("blocks.0"));
  }
}

// The blocks of which something is computed again, in the order in which that begins.
std::vector<std::string> order_of(const Recomputed& again) {
  std::vector<std::string> order;
  std::set<size_t> seen;
  for (size_t i = 0; i < again.origin.size(); ++i) {
    const std::string block = again.graph.nodes()[i].at.substr(0, 8);
    if (!seen.insert(again.origin[i]).second && std::ranges::find(order, block) == order.end())
      order.push_back(block);
  }
  return order;
}

Graph fused(const Graph& g) {
  const Graph low = lower(g, [](const Signature& s) { return s.op->reference; });
  return dead_code(inline_producers(common_subexpressions(low), {}));
}

const std::vector<std::string> last_block_first = {"blocks.2", "blocks.1", "blocks.0"};

TEST(recompute, second_computation__comes_just_before_its_gradients) {
  const Graph g = chain_gradients(3);
  EXPECT_EQ(order_of(Recomputable(g, "loss").with({.blocks = 3})), last_block_first);
}

TEST(recompute, pointwise_value_of_a_recomputed_block__is_kept) {
  const Graph g = fused(chain_gradients(3, "blocks", true));
  const Recomputable r(g, "loss");
  EXPECT_GT(r.most().pointwise, 3);  // the sums and the activations
  EXPECT_EQ(order_of(r.with(r.most())), last_block_first);
}

// silu(h) is made of a product that its own gradient reads too.
TEST(recompute, pointwise_values__are_recomputed_without_matmuls) {
  const Graph g = fused(chain_gradients(5));
  EXPECT_EQ(most_of(g).pointwise, 5);
  for (const int64_t expressions : {2, 5}) {
    const Recomputed again = Recomputable(g, "loss").with({.pointwise = expressions});
    EXPECT_EQ(count(again.graph, ops::def::matmul()), count(g, ops::def::matmul()));
    EXPECT_EQ(count(again.graph, ops::def::pointwise()),
              count(g, ops::def::pointwise()) + expressions);
  }
}

TEST(recompute, expressions_of_slices__are_pointwise_too) {
  const Graph g = fused(chain_gradients(3, "blocks", true));
  const Graph columns = elide_copies(g, [](const Signature&) { return true; });
  EXPECT_GT(count(columns, ops::def::loop()), 0);
  EXPECT_EQ(most_of(columns).pointwise, most_of(g).pointwise);
}

TEST(recompute, no_such_loss__is_an_error) {
  EXPECT_THROW(Recomputable(chain_gradients(2), "lost"), Error);
}

// ---- networks ------------------------------------------------------------------------------

struct Case {
  const char* model;
  const char* settings;
  double shrinks;  // the arena, to at most this fraction
};

// Small, and deep enough that activations are most of the arena.
constexpr Case cases[] = {
    {"tiny", "{dropout=0.1}", 0.65},
    {"ddpmpp_cifar10",
     "{image_size=16 model_channels=32 channel_mult=[1,2] num_blocks=2 dropout=0.1 "
     "attention_resolutions=[8]}",
     0.55},
    {"unet64", "{image_size=16 channel_mult=[1,2] num_res_blocks=2 dropout=0.1 model_channels=32}",
     0.6},
    {"dit_s4", "{image_size=32 width=64 depth=6 heads=4 classes=10 learn_sigma=false}", 0.4}};

Graph loss_of(const Case& c, int64_t batch = 8) {
  NamedModel named = find_model(c.model);
  parse_fields(named.config.fields(), c.settings);
  check(*named.model, named.config);
  const CommonConfig& common = named.config.common();
  return loss_graph({}, network_of(*named.model, named.config),
                    {.batch = batch,
                     .image = {common.image_size, common.image_size, common.in_channels},
                     .conditions = class_conditions(named.config)});
}

struct Recomputed {
  int64_t arena = 0, bytes = 0;  // bytes: with weights and states
  std::vector<float> numbers;    // losses and norms of gradients
  std::map<std::string, std::vector<float>> kept;
  RecomputeCount again;
};

// Three steps from hashed weights.
Recomputed trained(const Graph& loss, const Recompute& how, DType dtype = DType::f32,
                   const Context& context = open_context("cpu", {.threads = 1})) {
  const train::StepOptions options{.dtype = dtype, .max_norm = 1};
  Plan plan(train::train_step(loss, options), context, {.recompute = how});
  for (const nn::Weight& w : testing::weights_of(loss))
    plan.bind(w.name, testing::hashed_weight(w));
  plan.bind_missing();
  Recomputed out{.arena = plan.arena_bytes(), .again = plan.recomputed()};
  out.bytes = out.arena + plan.source_bytes();
  for (int64_t step = 0; step < 3; ++step) {
    NamedTensors in = train::step_inputs({.step = step, .lr = 1e-3, .ema_decay = 0.5}, options);
    for (const Source& s : plan.graph().sources()) {
      if (s.kind != Source::Kind::input || in.contains(s.name)) continue;
      const Type& t = plan.graph().type(s.value);
      in[s.name] = t.dtype == DType::f32 ? testing::hashed_input(s.name, t.shape) : Tensor(t);
    }
    in["step"] = scalar_tensor(step);
    const NamedTensors results = plan.run(in);
    for (const char* name : {"loss", "grad_norm"})
      out.numbers.push_back(results.at(name).span<float>()[0]);
  }
  for (const Source& s : plan.graph().sources()) {
    if (s.kind == Source::Kind::input) continue;
    const Tensor t = plan.fetch(s.name);
    const auto v = t.span<float>();
    out.kept[s.name] = {v.begin(), v.end()};
  }
  return out;
}

TEST(recompute, three_steps_of_networks__are_the_same_bits_in_less_memory) {
  for (const Case& c : cases) {
    const Graph loss = loss_of(c);
    const Recomputed off = trained(loss, {}), all = trained(loss, {.kind = Recompute::Kind::all}),
                     expressions = trained(loss, {.kind = Recompute::Kind::pointwise});
    EXPECT_EQ(all.numbers, off.numbers) << c.model;
    EXPECT_EQ(expressions.numbers, off.numbers) << c.model;
    for (const auto& [name, values] : off.kept) {
      EXPECT_TRUE(all.kept.at(name) == values) << c.model << ' ' << name;
      EXPECT_TRUE(expressions.kept.at(name) == values) << c.model << ' ' << name;
    }
    EXPECT_LT(expressions.arena, off.arena) << c.model;
    EXPECT_GT(off.numbers[1], 0) << c.model;
    EXPECT_LE(static_cast<double>(all.arena), c.shrinks * static_cast<double>(off.arena))
        << c.model << ": " << off.arena << " to " << all.arena;
  }
}

TEST(recompute, bf16_and_some_blocks__are_the_same_bits_too) {
  const Graph loss = loss_of(cases[0]);
  const Recomputed off = trained(loss, {}, DType::bf16);
  const Recomputed some =
      trained(loss, {.kind = Recompute::Kind::fit, .bytes = off.bytes - 1}, DType::bf16);
  EXPECT_EQ(some.numbers, off.numbers);
  EXPECT_EQ(some.kept, off.kept);
  EXPECT_LT(some.arena, off.arena);
}

// ---- on a GPU --------------------------------------------------------------------------------

void expect_same_bits(const Recomputed& a, const Recomputed& b) {
  EXPECT_EQ(a.numbers, b.numbers);
  for (const auto& [name, values] : a.kept) EXPECT_TRUE(b.kept.at(name) == values) << name;
  EXPECT_GT(a.numbers[1], 0);
}

class RecomputeOn : public test::OnBackend, public ::testing::WithParamInterface<Case> {
  void SetUp() override { open("cuda"); }
};

// A plan that is to compute blocks again is fused otherwise than one that is not, and rounds
// elsewhere; so fewer blocks are compared with all.
TEST_P(RecomputeOn, fewer_blocks_or_all__are_the_same_bits) {
  const Graph loss = loss_of(GetParam());
  const auto run = [&](const Recompute& r) { return trained(loss, r, DType::bf16, context_); };
  const Recomputed all = run({.kind = Recompute::Kind::all});
  const Recomputed expressions = run({.kind = Recompute::Kind::pointwise});
  // A limit is of all that is taken, also by the driver.
  const int64_t driver = context_.device->driver_memory().first;
  const Recomputed some =
      run({.kind = Recompute::Kind::fit, .bytes = driver + (all.bytes + expressions.bytes) / 2});
  EXPECT_GT(some.again.blocks, 0);
  EXPECT_LT(some.again.blocks, all.again.blocks);
  EXPECT_LT(all.arena, some.arena);
  expect_same_bits(some, all);
}

class RematerialiseOn : public test::OnEachBackend {};

// Without the name of its loss a plan keeps the sums that it could make again
// (passes/fusion/rematerialise.h).
TEST_P(RematerialiseOn, sums_rematerialised_or_kept__are_the_same_bits) {
  constexpr Case gated = {
      "dit_s2", "{image_size=32 width=64 depth=4 heads=1 classes=10 learn_sigma=false}", 1};
  const Graph loss = loss_of(gated, 16);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Recomputed kept = trained(loss, {.loss = ""}, dtype, context_);
    const Recomputed made = trained(loss, {}, dtype, context_);
    expect_same_bits(made, kept);
    EXPECT_LT(made.arena, kept.arena);
  }
}

// But for the tiny one, which fits into half without blocks, once it is lowered for them.
std::vector<Case> cases_on_a_gpu() {
  return test::only("cuda").empty() ? std::vector<Case>{} : std::vector(cases + 1, std::end(cases));
}

INSTANTIATE_TEST_SUITE_P(cuda, RecomputeOn, ::testing::ValuesIn(cases_on_a_gpu()),
                         [](const auto& info) { return info.param.model; });
INSTANTIATE_TEST_SUITE_P(cuda, RematerialiseOn, ::testing::ValuesIn(test::only("cuda")),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RecomputeOn);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RematerialiseOn);

}  // namespace
}  // namespace ebb::recompute_test
