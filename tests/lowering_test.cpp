// The passes of runtime/lowering.h on whole networks.
#include "runtime/lowering.h"

#include <gtest/gtest.h>

#include <set>

#include "backends.h"
#include "base/error.h"
#include "diffusion/loss.h"
#include "ir/text.h"
#include "models/model.h"
#include "pipeline/load_model.h"
#include "runtime/plan.h"
#include "train/step.h"

namespace ebb {
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
}  // namespace ebb
