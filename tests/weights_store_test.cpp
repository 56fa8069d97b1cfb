// The weight store: what plans read of it are the numbers of the file, once on every device.
#include "runtime/weight_store.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "models/model.h"
#include "nn/hashed_weights.h"
#include "nn/ops.h"
#include "passes/contractions/merge_matmuls.h"
#include "passes/precision/mixed_precision.h"
#include "runtime/plan.h"
#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_case.h"
#include "train/model_weights.h"

namespace ebb::weights_store_test {
namespace {

using testing::error_of;
using testing::FarDevice;
using testing::Folder;

using testing::cpu;

Value param(Graph& g, std::string_view name, Shape shape) {
  return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
}

std::vector<std::string_view> ops_of(const Graph& g) {
  std::vector<std::string_view> out;
  for (const Node& n : g.nodes()) out.push_back(n.op->name);
  return out;
}

PreparedGraph prepared(const Graph& g) {
  return prepare(g, [](const Source& s) { return s.kind == Source::Kind::param; });
}

TEST(prepare, what_depends_on_weights_alone__moves_and_the_rest_stays) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}});
  const Value w = ops::permute(param(g, "w", {6, 5}), {1, 0});
  g.output("y", ops::linear(x, ops::cast(w, DType::f32) * 2.0, {}));
  const PreparedGraph p = prepared(g);
  EXPECT_EQ(ops_of(p.prepare).front(), "permute");
  EXPECT_EQ(p.prepare.nodes().size(), 2u);
  EXPECT_EQ(p.step.nodes().size(), g.nodes().size() - 2);
  ASSERT_EQ(p.values.size(), 1u);
  EXPECT_EQ(p.values[0].source, "w");
  EXPECT_EQ(p.step.find_source("w")->kind, Source::Kind::param);
  EXPECT_EQ(p.step.type(p.step.find_source("w")->value), (Type{DType::f32, {5, 6}}));
}

TEST(merge_matmuls, products_of_one_row_a_sample__are_one_product) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}});
  const auto layer = [&](const std::string& name, int64_t width, bool bias) {
    const Value w = ops::cast(param(g, name, {width, 6}), DType::f32) * 2.0;
    return ops::linear(x, w, bias ? param(g, name + ".bias", {width}) : Value{});
  };
  const Value a = layer("a", 8, true), b = layer("b", 3, true);
  const auto halves = ops::split(a, 1, 2);
  g.output("halves", halves[0] * halves[1]);
  g.output("b", b + ops::slice(layer("c", 9, true), 1, 2, 5));
  g.output("no_bias", layer("d", 5, false));
  const Graph merged =
      merge_matmuls(g, [](const Source& s) { return s.kind == Source::Kind::param; });
  verify(merged, "test");
  const auto ops = ops_of(merged);
  EXPECT_EQ(std::ranges::count(ops, "matmul"), 2);  // that without bias has no partner
  EXPECT_EQ(std::ranges::count(ops, "split"), 0);   // slices of slices are slices of the product
  NamedTensors in = {{"x", nn::hashed_input("x", {4, 6})}};
  Plan before(g, cpu()), after(merged, cpu());
  for (Plan* plan : {&before, &after})
    for (const Source& s : g.sources())
      if (s.kind == Source::Kind::param)
        plan->bind(s.name, nn::hashed_input(s.name, g.type(s.value).shape));
  const NamedTensors want = before.run(in), have = after.run(in);
  for (const auto& [name, tensor] : want) {
    const auto w = tensor.span<float>(), h = have.at(name).span<float>();
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(h[i], w[i], 1e-5) << name << ' ' << i;
  }
}

TEST(merge_matmuls, weights_that_are_inputs_and_rows_of_tokens__stay) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}}), y = g.input("y", {DType::f32, {2, 4, 6}});
  const Value given = g.input("w", {DType::f32, {8, 6}});
  g.output("a", ops::linear(x, given) + ops::linear(x, param(g, "a", {8, 6})));
  g.output("b", ops::linear(y, param(g, "b", {8, 6})) + ops::linear(y, param(g, "c", {8, 6})));
  const Graph merged =
      merge_matmuls(g, [](const Source& s) { return s.kind == Source::Kind::param; });
  EXPECT_EQ(merged.nodes().size(), g.nodes().size());
}

TEST(merge_matmuls, weights_that_others_read__stay) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}}), y = g.input("y", {DType::f32, {3, 4, 6}});
  const Value shared = param(g, "shared", {8, 6});
  g.output("a", ops::linear(x, shared) + ops::linear(x, param(g, "a", {8, 6})));
  g.output("b", ops::linear(y, shared));
  const Graph merged =
      merge_matmuls(g, [](const Source& s) { return s.kind == Source::Kind::param; });
  EXPECT_EQ(merged.nodes().size(), g.nodes().size());
}

// ---- preparing ---------------------------------------------------------------------------

TEST(prepare, repeats_of_weights__stay_in_the_step_and_reshapes_are_nothing) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4, 6}});
  const Value b = ops::broadcast_to(ops::reshape(param(g, "b", {6, 1}), {1, 6}), {4, 6});
  g.output("y", x + b);
  const PreparedGraph p = prepared(g);
  EXPECT_TRUE(p.prepare.nodes().empty());
  ASSERT_EQ(p.values.size(), 1u);
  EXPECT_EQ(p.values[0].key, "b");
  EXPECT_EQ(p.step.type(p.step.find_source("b")->value).shape, (Shape{1, 6}));
}

TEST(prepare, what_depends_on_inputs_or_on_what_is_updated__stays) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {4}});
  const Value s = g.source(Source::Kind::state, "s", {DType::f32, {4}});
  const Value w = param(g, "w", {4});
  g.update("s", s * 0.5 + w);
  g.output("y", x * w);
  const PreparedGraph p = prepared(g);
  EXPECT_TRUE(p.prepare.nodes().empty());
  EXPECT_EQ(p.step.nodes().size(), g.nodes().size());
}

TEST(prepare, keys__are_of_the_expression_and_not_of_the_graph) {
  const auto keys = [](int64_t batch, double factor) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {batch, 6}});
    g.output("y", x * (param(g, "w", {6}) * factor));
    return prepared(g).values.at(0).key;
  };
  EXPECT_EQ(keys(1, 2), keys(8, 2));
  EXPECT_NE(keys(1, 2), keys(1, 3));
}

TEST(prepare, a_weight_that_is_an_output__is_a_source_of_the_step) {
  Graph g;
  g.output("w", param(g, "w", {6}));
  g.output("x", g.input("x", {DType::f32, {6}}));
  const PreparedGraph p = prepared(g);
  EXPECT_EQ(p.step.outputs().size(), 2u);
  EXPECT_EQ(p.values.at(0).key, "w");
}

// ---- networks ------------------------------------------------------------------------------

struct Network {
  const Model* model;
  ModelConfig config;

  static Network of(const std::string& name) {
    if (name == "tiny") {
      const NamedModel m = find_model(name);
      return {m.model, m.config};
    }
    const testing::GoldenCase c(name);
    return {c.model, c.config};
  }
  nn::Weights weights() const { return weights_of(*model, config); }
  Graph graph(DType dtype, int64_t batch = 2) const {
    Graph g;
    g.output("F", network_of(*model, config)(g, network_inputs(g, *model, config, batch)));
    return mixed_precision(g, dtype, Parameters::rounded);
  }
  // A file of hashed weights.
  std::string file(const Folder& folder, DType dtype) const {
    std::vector<io::NamedTensor> tensors;
    for (const nn::Weight& w : weights())
      tensors.push_back({w.name, testing::hashed_file_tensor(w.name, nn::file_shape(w)).to(dtype)});
    const std::string path = folder / str(dtype, ".safetensors");
    io::write_safetensors(path, tensors);
    return path;
  }
};

std::vector<float> run_stored(Plan& plan) {
  NamedTensors in;
  for (const Source& s : plan.graph().sources()) {
    if (s.kind != Source::Kind::input) continue;
    const Type& t = plan.graph().type(s.value);
    in[s.name] = t.dtype == DType::f32 ? testing::hashed_input(s.name, t.shape) : Tensor(t);
  }
  const Tensor f = plan.run(in).at("F");
  return {f.span<float>().begin(), f.span<float>().end()};
}

class StoredNetwork : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(networks, StoredNetwork,
                         ::testing::Values("tiny", "cs179", "dit_p2", "adm_full", "songunet_ddpmpp",
                                           "dhariwal_two_heads"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StoredNetwork, files_of_every_format__give_the_bits_of_weights_that_were_bound) {
  const Folder folder;
  const Network n = Network::of(GetParam());
  const Context context = cpu();
  for (const DType stored : {DType::f32, DType::bf16, DType::f16}) {
    const std::string file = n.file(folder, stored);
    const auto store = train::open_model_weights(file, n.weights());
    for (const DType compute : {DType::f32, DType::bf16}) {
      Plan bound(n.graph(compute), context);
      for (const auto& [name, t] : train::load_model_weights(file, n.weights()))
        bound.bind(name, t);
      Plan shared(n.graph(compute), context, {.weights = store});
      EXPECT_EQ(run_stored(shared), run_stored(bound)) << stored << " in " << compute;
    }
  }
}

TEST_P(StoredNetwork, steps__compute_nothing_of_weights_alone) {
  const Folder folder;
  const Network n = Network::of(GetParam());
  const auto store = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const Graph step = lowered_for(n.graph(DType::bf16), *cpu().device, {.weights = store});
  std::vector<bool> weight(static_cast<size_t>(step.values()));
  for (const Source& s : step.sources())
    weight[static_cast<size_t>(s.value)] = s.kind != Source::Kind::input;
  for (const Node& node : step.nodes()) {
    const bool alone = !node.in.empty() && std::ranges::all_of(node.in, [&](int32_t v) {
      return weight[static_cast<size_t>(v)];
    });
    EXPECT_FALSE(alone) << step.signature(node).text();
  }
}

// ---- memory --------------------------------------------------------------------------------

std::map<std::string, const void*> addresses(const Plan& plan) {
  std::map<std::string, const void*> out;
  for (const Source& s : plan.graph().sources())
    if (s.kind == Source::Kind::param) out[s.name] = plan.bound(s.name).raw();
  return out;
}

TEST(weight_store, plans_of_other_batches__share_memory_and_copy_nothing) {
  const Folder folder;
  const Network n = Network::of("tiny");
  const auto store = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const auto device = std::make_shared<FarDevice>();
  Plan one(n.graph(DType::bf16, 1), {.device = device}, {.weights = store});
  run_stored(one);
  const int64_t held = store->held_bytes(*device), free = device->free_memory();
  Plan two(n.graph(DType::bf16, 3), {.device = device}, {.weights = store});
  EXPECT_NEAR(static_cast<double>(two.missing_bytes() - two.arena_bytes()),
              static_cast<double>(two.source_bytes() - held), 1024);  // padding
  run_stored(two);
  EXPECT_EQ(addresses(one), addresses(two));
  EXPECT_EQ(store->held_bytes(*device), held);
  EXPECT_NEAR(static_cast<double>(free - device->free_memory()),
              static_cast<double>(two.arena_bytes() + two.source_bytes() - held), 1024);  // padding
}

// Of a weight whose cast is all that is read, the device keeps the cast alone.
TEST(weight_store, device__holds_weights_in_the_compute_dtype_only) {
  const Folder folder;
  const Network n = Network::of("dit_p2");
  const auto store = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const auto device = std::make_shared<FarDevice>();
  const int64_t before = device->free_memory();
  Plan plan(n.graph(DType::bf16), {.device = device}, {.weights = store});
  run_stored(plan);
  int64_t in_bf16 = 0, vectors = 0;
  for (const nn::Weight& w : n.weights()) {
    in_bf16 += 2 * w.shape.numel();
    if (w.shape.rank() == 1) vectors += 2 * w.shape.numel();
  }
  EXPECT_LE(store->held_bytes(*device), in_bf16 + vectors);
  int64_t inputs = 0;
  for (const Source& s : plan.graph().sources())
    if (s.kind == Source::Kind::input) inputs += plan.graph().type(s.value).bytes();
  EXPECT_NEAR(static_cast<double>(before - device->free_memory()),
              static_cast<double>(store->held_bytes(*device) + plan.arena_bytes() + inputs),
              1024);  // padding
}

TEST(weight_store, what_no_plan_has__can_be_dropped_and_comes_back) {
  const Folder folder;
  const Network n = Network::of("tiny");
  const auto store = train::open_model_weights(n.file(folder, DType::bf16), n.weights());
  const auto device = std::make_shared<FarDevice>();
  const Context context{.device = device};
  std::vector<float> first;
  {
    Plan plan(n.graph(DType::f32), context, {.weights = store});
    first = run_stored(plan);
    store->drop_unused(*device);
    EXPECT_GT(store->held_bytes(*device), 0);
  }
  store->drop_unused(*device);
  EXPECT_EQ(store->held_bytes(*device), 0);
  Plan plan(n.graph(DType::f32), context, {.weights = store});
  EXPECT_EQ(run_stored(plan), first);
}

TEST(weight_store, f32_files_on_the_host__are_used_where_they_lie) {
  const Folder folder;
  const Network n = Network::of("dit_p2");
  const auto store = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const Context context = cpu();
  Plan plan(n.graph(DType::f32), context, {.weights = store});
  run_stored(plan);
  int64_t in_place = 0;
  for (const auto& [name, address] : addresses(plan))
    in_place += address == store->weights().find(name)->second.host.raw();
  EXPECT_GT(in_place, static_cast<int64_t>(addresses(plan).size()) * 9 / 10);
  EXPECT_LT(store->held_bytes(*context.device), 8192);  // the patches' filters are put into order
}

// Kernels widen them in their workspace.
TEST(weight_store, f16_files_on_the_host__stay_in_16_bits_in_f32_matmuls) {
  const Folder folder;
  const Network n = Network::of("dit_p2");
  const auto store = train::open_model_weights(n.file(folder, DType::f16), n.weights());
  const auto wide = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const Context context = cpu();
  Plan plan(n.graph(DType::f32), context, {.weights = store});
  Plan other(n.graph(DType::f32), context, {.weights = wide});
  const std::vector<float> got = run_stored(plan), want = run_stored(other);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-2) << i;
  int64_t bytes = 0;
  for (const nn::Weight& w : n.weights()) bytes += Type{DType::f32, w.shape}.bytes();
  EXPECT_LT(store->held_bytes(*context.device), bytes / 4);
}

TEST(weight_store, too_little_memory__is_the_error_of_plans) {
  const Folder folder;
  const Network n = Network::of("tiny");
  const auto store = train::open_model_weights(n.file(folder, DType::f32), n.weights());
  const auto device = std::make_shared<FarDevice>(100'000);
  Plan plan(n.graph(DType::f32), {.device = device}, {.weights = store});
  const std::string error = error_of([&] { run_stored(plan); });
  EXPECT_EQ(error.rfind("plan: out of memory: a run needs ", 0), 0u) << error;
  EXPECT_EQ(error_of([&] { plan.check_memory(); }).rfind("plan: out of memory: ", 0), 0u);
}

// The files' tensors and what lies between them and the results count, if the arena is smaller.
TEST(weight_store, missing_bytes__count_what_preparing_takes) {
  const auto stored = [](float v) {
    Tensor t(DType::f32, {256, 512});
    std::ranges::fill(t.span<float>(), v);
    return stored_tensor(t);
  };
  const auto store =
      std::make_shared<WeightStore>(WeightStore::Weights{{"a", stored(1)}, {"b", stored(2)}});
  Graph g;
  const Value both =
      ops::permute(ops::concat({param(g, "a", {256, 512}), param(g, "b", {256, 512})}, 0), {1, 0});
  g.output("y", ops::linear(g.input("x", {DType::f32, {1, 512}}), ops::permute(both, {1, 0})));
  const auto device = std::make_shared<FarDevice>();
  const int64_t before = device->free_memory();
  Plan plan(g, {.device = device}, {.weights = store});
  const int64_t missing = plan.missing_bytes();
  plan.run({{"x", Tensor(DType::f32, {1, 512})}});
  EXPECT_NEAR(static_cast<double>(before - device->least), static_cast<double>(missing), 4096);
  EXPECT_EQ(plan.missing_bytes(), 0);
}

// What is computed comes first, while the memory of what is read as it is can still serve for it.
TEST(weight_store, preparing__takes_no_more_than_the_weights_where_most_are_read_as_they_are) {
  const auto stored = [] { return stored_tensor(Tensor(DType::f32, {256, 512})); };
  const auto store = std::make_shared<WeightStore>(WeightStore::Weights{
      {"a", stored()}, {"b", stored()}, {"c", stored()}, {"d", stored()}, {"e", stored()}});
  Graph g;
  const Value x = g.input("x", {DType::f32, {1, 512}});
  const auto apart = [&](const std::string& name) {
    return ops::linear(x, param(g, name, {256, 512}));
  };
  g.output("first", apart("a") + apart("b") + apart("c"));
  const Value both = ops::concat({param(g, "d", {256, 512}), param(g, "e", {256, 512})}, 0);
  g.output("both", ops::linear(x, both));
  const auto device = std::make_shared<FarDevice>();
  const int64_t before = device->free_memory();
  Plan plan(g, {.device = device}, {.fuse = false, .weights = store});
  const int64_t missing = plan.missing_bytes();
  plan.run({{"x", Tensor(DType::f32, {1, 512})}});
  constexpr int64_t weights = 5 * 256 * 512 * 4;
  EXPECT_EQ(store->held_bytes(*device), weights);
  const auto needed = static_cast<double>(plan.source_bytes() + plan.arena_bytes());
  EXPECT_NEAR(static_cast<double>(before - device->least), needed, 4096);  // padding
  EXPECT_NEAR(static_cast<double>(missing), needed, 4096);
}

TEST(weight_store, faults_of_other_kinds__drop_nothing) {
  const auto store = std::make_shared<WeightStore>(
      WeightStore::Weights{{"a", stored_tensor(Tensor(DType::f32, {64}))},
                           {"b", stored_tensor(Tensor(DType::f32, {64}))}});
  const auto device = std::make_shared<FarDevice>();
  const auto plan_of = [&](const std::string& name) {
    Graph g;
    g.output("y", param(g, name, {64}) * g.input("x", {DType::f32, {}}));
    return std::make_unique<Plan>(g, Context{.device = device}, CompileOptions{.weights = store});
  };
  plan_of("a")->run({{"x", scalar_tensor(1.0f)}});
  const int64_t held = store->held_bytes(*device);
  const auto other = plan_of("b");
  other->keep("x", scalar_tensor(1.0f));  // the weight is what it asks for next
  device->lost = "far: the device is lost";
  EXPECT_EQ(error_of([&] { other->run({}); }), device->lost);
  EXPECT_EQ(store->held_bytes(*device), held);
}

// Sources that become each other's values are copied, whatever passes make of the rest.
TEST(weight_store, states_that_swap_or_become_a_weight__keep_their_values) {
  Tensor w(DType::f32, {4});
  std::ranges::fill(w.span<float>(), 3.0f);
  const auto store = std::make_shared<WeightStore>(WeightStore::Weights{{"w", stored_tensor(w)}});
  Graph g;
  const auto state = [&](std::string_view name) {
    return g.source(Source::Kind::state, name, {DType::f32, {4}});
  };
  const Value a = state("a"), b = state("b"), c = state("c");
  g.update("a", b);
  g.update("b", a);
  g.update("c", param(g, "w", {4}) * 2.0);
  g.output("y", c + 0.0);
  Plan plan(g, cpu(), {.weights = store});
  const auto bind = [&](std::string_view name, float v) {
    Tensor t(DType::f32, {4});
    std::ranges::fill(t.span<float>(), v);
    plan.bind(name, t);
  };
  bind("a", 1), bind("b", 2), bind("c", 0);
  const auto first = [&](std::string_view name) { return plan.bound(name).span<float>()[0]; };
  EXPECT_EQ(plan.run({}).at("y").span<float>()[0], 0);
  EXPECT_EQ(first("a"), 2);
  EXPECT_EQ(first("b"), 1);
  EXPECT_EQ(first("c"), 6);
  EXPECT_EQ(plan.run({}).at("y").span<float>()[0], 6);
  EXPECT_EQ(first("a"), 1);
  EXPECT_EQ(first("c"), 6);
}

// ---- what is wrong -------------------------------------------------------------------------

TEST(weight_store, reading_that_fails__is_that_error) {
  StoredWeight w{.type = {DType::f32, {int64_t{1} << 20}},
                 .read = [](int64_t at, std::span<uint8_t>) {
                   if (at > 0) fail("file: cannot read");
                 }};
  const auto store = std::make_shared<WeightStore>(WeightStore::Weights{{"w", std::move(w)}});
  Graph g;
  g.output("y", param(g, "w", {int64_t{1} << 20}) * g.input("x", {DType::f32, {}}));
  Plan plan(g, cpu(), {.weights = store});
  EXPECT_EQ(error_of([&] { plan.run({{"x", scalar_tensor(1.0f)}}); }), "file: cannot read");
}

TEST(weight_store, weight_of_another_shape__is_an_error) {
  const auto store = std::make_shared<WeightStore>(
      WeightStore::Weights{{"w", stored_tensor(Tensor(DType::f32, {3}))}});
  Graph g;
  g.output("y", param(g, "w", {4}) * 2.0);
  EXPECT_EQ(error_of([&] { Plan(g, cpu(), {.weights = store}); }),
            "weights: 'w' is stored as f32[3], which is read as f32[3]  the network has f32[4]");
}

TEST(model_weights, number_that_is_not_finite__is_named_in_every_format) {
  const Folder folder;
  const nn::Weights weights = {{"a", {70'000}, {}}, {"b", {500'000}, {}}};
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    Tensor a(DType::f32, {70'000}), b(DType::f32, {500'000});
    b.span<float>()[400'123] = -INFINITY;
    const std::string path = folder / str(d, ".safetensors");
    const std::vector<io::NamedTensor> tensors = {{"a", a.to(d)}, {"b", b.to(d)}};
    io::write_safetensors(path, tensors);
    const std::string error =
        "checkpoint: weights must be finite (b has -inf as element 400123)  " + path;
    EXPECT_EQ(error_of([&] { train::open_model_weights(path, weights); }), error);
    EXPECT_EQ(error_of([&] { train::load_model_weights(path, weights); }), error);
  }
}

TEST(model_weights, opening__tells_the_bytes_that_were_read) {
  const Folder folder;
  const Network n = Network::of("tiny");
  int64_t last = 0, of = 0;
  const std::string path = n.file(folder, DType::bf16);
  train::open_model_weights(path, n.weights(), {}, [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    last = done, of = all;
  });
  EXPECT_EQ(last, 2 * nn::count_elements(n.weights()));
  EXPECT_EQ(of, last);
}

}  // namespace
}  // namespace ebb::weights_store_test
