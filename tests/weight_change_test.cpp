// Changes of weights in a store: what plans read is the sum, rounded once, wherever it lies.
#include "runtime/weight_change.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "nn/ops.h"
#include "passes/precision/mixed_precision.h"
#include "runtime/plan.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_case.h"
#include "train/model_weights.h"

namespace ebb::weight_change_test {
namespace {

using testing::error_of;
using testing::FarDevice;
using testing::Folder;
using testing::GoldenCase;

const std::string network = "dhariwal_two_heads";  // has q, k and v interleaved, and filters

struct Stored {
  GoldenCase golden{network};
  Folder folder;
  nn::Weights weights = weights_of(*golden.model, golden.config);

  static Tensor plain(const nn::Weight& w) {
    return testing::hashed_file_tensor(w.name, nn::file_shape(w));
  }
  std::shared_ptr<WeightStore> open(const std::string& name, DType dtype,
                                    const std::function<Tensor(const nn::Weight&)>& tensor) const {
    std::vector<io::NamedTensor> tensors;
    for (const nn::Weight& w : weights) tensors.push_back({w.name, tensor(w).to(dtype)});
    io::write_safetensors(folder / name, tensors);
    return train::open_model_weights(folder / name, weights);
  }
  Graph graph(DType compute) const {
    Graph g;
    g.output("F", network_of(*golden.model, golden.config)(
                      g, network_inputs(g, *golden.model, golden.config, 2)));
    return mixed_precision(g, compute, Parameters::rounded);
  }
};

std::vector<float> run(Plan& plan) {
  NamedTensors in;
  for (const Source& s : plan.graph().sources()) {
    if (s.kind != Source::Kind::input) continue;
    const Type& t = plan.graph().type(s.value);
    in[s.name] = t.dtype == DType::f32 ? testing::hashed_input(s.name, t.shape) : Tensor(t);
  }
  const Tensor f = plan.run(in).at("F");
  return {f.span<float>().begin(), f.span<float>().end()};
}

bool is_changed(const std::string& name) { return name.ends_with("weight"); }

// strength times a factor of the weight's shape
WeightChange addition(const nn::Weight& w, float strength, DType dtype = DType::f32) {
  const Tensor factor = testing::hashed("change " + w.name, nn::file_shape(w), 0.05).to(dtype);
  return {.name = w.name,
          .form = "addition",
          .factors = {stored_tensor(factor)},
          .scalars = {strength, 0, 0, 0},
          .apply = [](const WeightChange::Operands& in) {
            return in.sum + ops::cast(in.factors[0], DType::f32) * ops::slice(in.scalars, 0, 0, 1);
          }};
}

WeightChanges additions(const nn::Weights& weights, float strength) {
  WeightChanges out;
  for (const nn::Weight& w : weights)
    if (is_changed(w.name)) out[w.name] = {addition(w, strength)};
  return out;
}

// The weight, changed by another program.
Tensor added(const nn::Weight& w, DType stored, float strength) {
  const Tensor out = Stored::plain(w).to(stored).to(DType::f32);
  if (!is_changed(w.name)) return out;
  const Tensor factor = testing::hashed("change " + w.name, nn::file_shape(w), 0.05);
  for (size_t i = 0; i < out.span<float>().size(); ++i)
    out.span<float>()[i] += factor.span<float>()[i] * strength;
  return out;
}

class ChangedStore : public ::testing::TestWithParam<std::tuple<DType, DType, bool>> {};
INSTANTIATE_TEST_SUITE_P(dtypes, ChangedStore,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return str(std::get<0>(info.param), "_in_", std::get<1>(info.param),
                                      std::get<2>(info.param) ? "_far" : "_host");
                         });

}  // namespace

TEST_P(ChangedStore, plans__read_the_sum_rounded_once_and_the_file_again_without) {
  const auto [stored, compute, far] = GetParam();
  const Stored n;
  const auto store = n.open("base", stored, Stored::plain);
  const Context context =
      far ? Context{.device = std::make_shared<FarDevice>()} : open_context("cpu", {.threads = 2});
  Plan plan(n.graph(compute), context, {.weights = store});
  const auto base = run(plan);
  for (const float strength : {0.5f, -0.25f}) {
    store->change(additions(n.weights, strength));
    const auto other = n.open("other", DType::f32, [&, stored = stored](const nn::Weight& w) {
      return added(w, stored, strength);
    });
    Plan wanted(n.graph(compute), context, {.weights = other});
    EXPECT_EQ(run(plan), run(wanted)) << strength;
    Plan later(n.graph(compute), context, {.weights = store});
    EXPECT_EQ(run(later), run(wanted)) << strength;
  }
  store->change({});
  EXPECT_EQ(run(plan), base);
}

// The sources of a plan that are weights, by dtype.
std::map<DType, int> dtypes_of(const Plan& plan) {
  std::map<DType, int> out;
  for (const Source& s : plan.graph().sources())
    if (s.kind == Source::Kind::param) ++out[plan.graph().type(s.value).dtype];
  return out;
}

// Sums are f32, and others stay as the file has them: whatever ran before.
TEST(weight_change, one_changed_weight__is_wide_on_the_host_as_long_as_it_is_changed) {
  const Stored n;
  const auto store = n.open("base", DType::f16, Stored::plain);
  const Context context = open_context("cpu", {.threads = 2});
  Plan plan(n.graph(DType::f32), context, {.weights = store});
  const auto base = run(plan);
  const std::map<DType, int> before = dtypes_of(plan);
  ASSERT_GT(before.at(DType::f16), 2);
  // one that is read in 16 bits
  const auto one = std::ranges::find_if(n.weights, [&](const nn::Weight& w) {
    const Source* s = plan.graph().find_source(w.name);
    return s && is_changed(w.name) && plan.graph().type(s->value).dtype == DType::f16;
  });
  ASSERT_NE(one, n.weights.end());
  const int64_t held = store->held_bytes(*context.device);
  store->change({{one->name, {addition(*one, 1)}}});
  std::map<DType, int> wanted = before;
  --wanted[DType::f16], ++wanted[DType::f32];
  Plan fresh(n.graph(DType::f32), context, {.weights = store});
  EXPECT_EQ(dtypes_of(fresh), wanted);
  plan.refresh();
  EXPECT_EQ(plan.missing_bytes(), fresh.missing_bytes());
  const auto changed = run(plan);
  EXPECT_EQ(dtypes_of(plan), wanted);
  EXPECT_EQ(run(fresh), changed);
  store->change({});
  for (Plan* p : {&plan, &fresh}) {
    EXPECT_EQ(run(*p), base);
    EXPECT_EQ(dtypes_of(*p), before);
  }
  EXPECT_EQ(store->held_bytes(*context.device), held);
}

TEST(weight_change, plan_that_is_made_again__keeps_what_it_was_given) {
  StoredWeight stored = stored_tensor(testing::hashed("w", {16, 16}, 1).to(DType::f16));
  stored.decode = [](Value v) { return ops::cast(v, DType::f32); };
  const auto store = std::make_shared<WeightStore>(WeightStore::Weights{{"w", stored}});
  Graph g;
  const Value s = g.source(Source::Kind::state, "s", {DType::f32, {1, 16}});
  const Value w = g.source(Source::Kind::param, "w", {DType::f32, {16, 16}});
  g.update("s", s + ops::linear(g.input("x", {DType::f32, {1, 16}}), w));
  Plan plan(g, open_context("cpu", {.threads = 2}), {.weights = store});
  const Tensor state(DType::f32, {1, 16});
  plan.bind("s", state);
  plan.keep("x", testing::hashed("x", {1, 16}, 1));
  double share = 0;
  plan.watch([&](double done) { share = done; });
  const auto type = [&] { return plan.graph().type(plan.graph().find_source("w")->value).dtype; };
  plan.run({});
  EXPECT_EQ(type(), DType::f16);
  const std::vector<float> once(state.span<float>().begin(), state.span<float>().end());
  store->change({{"w", {addition({"w", {16, 16}, {}}, 0)}}});
  share = 0;
  plan.run({});
  EXPECT_EQ(type(), DType::f32);
  EXPECT_EQ(share, 1);
  for (size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(state.span<float>()[i], 2 * once[i], 1e-5) << i;
}

TEST(weight_change, other_strengths__compile_nothing_and_use_the_memory_that_is_there) {
  const Stored n;
  const auto store = n.open("base", DType::bf16, Stored::plain);
  const auto device = std::make_shared<FarDevice>();
  Plan plan(n.graph(DType::bf16), {.device = device}, {.weights = store});
  store->change(additions(n.weights, 1), true);
  run(plan);
  const int64_t free = device->free_memory(), held = store->held_bytes(*device);
  const int captures = device->captures;
  store->change(additions(n.weights, 0.5), true);
  const int64_t sent = device->sent;
  run(plan);
  EXPECT_EQ(device->free_memory(), free);
  EXPECT_EQ(store->held_bytes(*device), held);
  EXPECT_EQ(device->captures, captures);      // the plan's graph is the same
  EXPECT_LT(device->sent - sent, 16 * 1024);  // strengths and inputs: no weights
}

TEST(weight_change, what_is_kept__goes_when_memory_is_short) {
  const Stored n;
  const auto store = n.open("base", DType::bf16, Stored::plain);
  const auto device = std::make_shared<FarDevice>();
  Plan plan(n.graph(DType::bf16), {.device = device}, {.weights = store});
  const auto base = run(plan);
  const int64_t held = store->held_bytes(*device);
  store->change(additions(n.weights, 1), true);
  const auto changed = run(plan);
  EXPECT_GT(store->held_bytes(*device), held);
  store->drop_unused(*device);
  EXPECT_EQ(store->held_bytes(*device), held);
  store->change(additions(n.weights, 0), true);
  run(plan);
  store->change(additions(n.weights, 1));
  EXPECT_EQ(run(plan), changed);
}

// A thread works on each device: what one does must not wait for the others, which may be
// capturing.
TEST(weight_change, devices__are_left_alone_by_each_other) {
  const Stored n;
  const auto store = n.open("base", DType::bf16, Stored::plain);
  const auto a = std::make_shared<FarDevice>(), b = std::make_shared<FarDevice>();
  const auto plan_on = [&](const std::shared_ptr<FarDevice>& device) {
    return std::make_unique<Plan>(n.graph(DType::bf16), Context{.device = device},
                                  CompileOptions{.weights = store});
  };
  store->change(additions(n.weights, 1), true);
  auto on_a = plan_on(a), on_b = plan_on(b);
  const auto first = run(*on_a);
  EXPECT_EQ(run(*on_b), first);
  on_a.reset(), on_b.reset();
  const int64_t held = store->held_bytes(*b), free = b->free_memory();
  b->fault = "waited for";
  store->drop_unused(*a);
  EXPECT_EQ(store->held_bytes(*a), 0);
  EXPECT_EQ(store->held_bytes(*b), held);
  store->change(additions(n.weights, 1));
  EXPECT_EQ(b->free_memory(), free) << "it lets go of what it kept when it is asked";
  EXPECT_EQ(b->fault, "waited for");
  b->fault.clear();
  store->drop_outdated(*b);
  EXPECT_LT(store->held_bytes(*b), held);
  on_b = plan_on(b);
  EXPECT_EQ(run(*on_b), first);
}

TEST(weight_change, terms_in_order__may_read_the_file_s_weight) {
  const Tensor w = testing::hashed("w", {6, 4}, 1), f = testing::hashed("f", {6, 4}, 1);
  WeightStore::Weights all;
  all.emplace("w", stored_tensor(w.to(DType::bf16)));
  WeightStore store(std::move(all));
  const auto term = [&](bool reads) {
    return WeightChange{.name = "f",
                        .form = reads ? "reads" : "adds",
                        .factors = {stored_tensor(f)},
                        .reads_weight = reads,
                        .apply = [](const WeightChange::Operands& in) {
                          return in.sum + (in.weight ? in.weight * in.factors[0] : in.factors[0]);
                        }};
  };
  store.change({{"w", {term(false), term(true)}}});
  const Tensor got = store.changed("w", open_context("cpu", {.threads = 2}));
  const Tensor base = w.to(DType::bf16).to(DType::f32);
  for (size_t i = 0; i < 24; ++i) {
    const float b = base.span<float>()[i], x = f.span<float>()[i];
    EXPECT_NEAR(got.span<float>()[i], b + x + b * x, 1e-6);
  }
  EXPECT_EQ(error_of([&] {
              store.change({{"v", {term(false)}}});
            }),
            "weights: no weight 'v' to change");
}

}  // namespace ebb::weight_change_test
