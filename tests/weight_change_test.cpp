// Changes of weights in a store: what plans read is the sum, rounded once, wherever it lies.
#include "runtime/weight_change.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "nn/ops.h"
#include "passes/mixed_precision.h"
#include "runtime/plan.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_case.h"
#include "train/model_weights.h"

namespace ebb {
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
    const auto other = n.open("other", DType::f32,
                              [&](const nn::Weight& w) { return added(w, stored, strength); });
    Plan wanted(n.graph(compute), context, {.weights = other});
    // On the host a plan that was made before the first change reads f32 sums in the stored dtype.
    const bool rounded = !far && compute == DType::f32 && stored != DType::f32;
    if (!rounded) {
      EXPECT_EQ(run(plan), run(wanted)) << strength;
    }
    Plan later(n.graph(compute), context, {.weights = store});
    EXPECT_EQ(run(later), run(wanted)) << strength;
  }
  store->change({});
  EXPECT_EQ(run(plan), base);
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
  store->drop_unused();
  EXPECT_EQ(store->held_bytes(*device), held);
  store->change(additions(n.weights, 0), true);
  run(plan);
  store->change(additions(n.weights, 1));
  EXPECT_EQ(run(plan), changed);
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

}  // namespace ebb
