// The passes of runtime/lowering.h on whole networks.
#include "runtime/lowering.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "backends.h"
#include "base/error.h"
#include "diffusion/loss.h"
#include "ir/text.h"
#include "models/model.h"
#include "nn/storage.h"
#include "nn/weights.h"
#include "passes/precision/mixed_precision.h"
#include "pipeline/load_model.h"
#include "runtime/plan.h"
#include "support/far_device.h"
#include "support/golden_case.h"
#include "train/step.h"

namespace ebb::lowering_test {
namespace {

class LoweringOn : public test::OnEachBackend {};

Graph training_step(const std::string& name, DType dtype) {
  const NamedModel m = find_model(name);
  const CommonConfig& c = m.config.common();
  const Graph loss = loss_graph(usual_diffusion(*m.model, m.config), network_of(*m.model, m.config),
                                {.batch = 4,
                                 .image = {c.image_size, c.image_size, c.in_channels},
                                 .conditions = class_conditions(m.config)});
  return train::train_step(loss, {.dtype = dtype});
}

TEST_P(LoweringOn, every_pass__leaves_a_graph_that_the_verifier_accepts) {
  const CompileOptions options;
  for (const char* name : {"tiny", "cs179"})
    for (const LoweringMode mode : {LoweringMode::no_recompute, LoweringMode::blocks}) {
      Lowering l{*context_.device, options, mode, true};
      EXPECT_NO_THROW(lowered(training_step(name, DType::bf16), l)) << name;
    }
}

// Of weights that a file has in a dtype; nothing reads them.
std::shared_ptr<WeightStore> store_of(const nn::Weights& weights, DType dtype) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights) {
    StoredWeight& stored = out[w.name];
    stored = stored_tensor(Tensor(dtype, nn::file_shape(w)));
    stored.decode = [w](Value v) { return nn::decode(w, v); };
  }
  return std::make_shared<WeightStore>(std::move(out));
}

// An evaluation of a network that reads a store; adds the names of the passes that changed it.
void lower_stored(const std::string& name, DType stored, DType compute, const Device& device,
                  std::set<std::string_view>& changed) {
  const testing::GoldenCase m(name);
  Graph g;
  g.output("F", network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 2)));
  g = mixed_precision(g, compute, Parameters::rounded);
  const CompileOptions options{.weights = store_of(weights_of(*m.model, m.config), stored)};
  std::string before = to_text(g);
  for (const Pass& p : lowering_passes()) {
    Lowering l{device, options, LoweringMode::no_recompute, true};
    std::string after = to_text(lowered(g, l, p.name));
    if (std::exchange(before, after) != after) changed.insert(p.name);
  }
}

TEST_P(LoweringOn, every_pass__leaves_a_good_graph_of_stored_weights) {
  std::set<std::string_view> changed;
  for (const char* name : {"dit_p2", "dhariwal_two_heads"})
    for (const DType stored : {DType::f32, DType::f16})
      for (const DType compute : {DType::f32, DType::bf16})
        EXPECT_NO_THROW(lower_stored(name, stored, compute, *context_.device, changed))
            << name << ' ' << stored << " in " << compute;
  for (const char* pass : {"as_stored", "merge_casts", "prepare"})
    EXPECT_TRUE(changed.contains(pass)) << pass;
  EXPECT_EQ(changed.contains("narrow_weights"), context_.device->on_host());
}

// Where weights are copied to a device, they are merged, too.
TEST(Lowering, weights_on_a_device__are_merged) {
  const testing::FarDevice device;
  std::set<std::string_view> changed;
  for (const char* name : {"dit_p2", "adm_full"})
    for (const DType stored : {DType::f32, DType::f16})
      EXPECT_NO_THROW(lower_stored(name, stored, DType::f32, device, changed)) << name << stored;
  EXPECT_TRUE(changed.contains("merge_matmuls"));
}

TEST_P(LoweringOn, graph_behind_the_last_pass__is_that_of_the_plan) {
  const Graph g = training_step("tiny", DType::f32);
  const CompileOptions options;
  Lowering l{*context_.device, options};
  const std::string_view last = lowering_passes().back().name;
  EXPECT_EQ(to_text(lowered(g, l, last)), to_text(Plan(g, context_).graph()));
}

TEST(Lowering, names_of_passes__are_unique_and_an_unknown_one_is_an_error) {
  std::set<std::string_view> names;
  for (const Pass& p : lowering_passes()) EXPECT_TRUE(names.insert(p.name).second) << p.name;
  const test::Opened cpu = test::open_backend("cpu");
  const CompileOptions options;
  Lowering l{*cpu.context.device, options};
  EXPECT_THROW(lowered({}, l, "fuze"), Error);
}

INSTANTIATE_TEST_SUITE_P(cpu, LoweringOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, LoweringOn, ::testing::ValuesIn(test::only("cuda")));

}  // namespace
}  // namespace ebb::lowering_test
