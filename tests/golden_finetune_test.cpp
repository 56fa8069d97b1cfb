// Training steps of a small U-Net against diffusers' network with torch's autograd and AdamW
// (tools/golden/finetune_golden.py): the whole network, and adapters by the formulas of PEFT and
// LyCORIS.
#include <gtest/gtest.h>

#include "support/finetune_case.h"
#include "support/golden_steps.h"

namespace ebb::golden_finetune_test {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() { return FinetuneCase::golden(); }

class golden_finetune_cases : public ::testing::TestWithParam<const char*> {};

TEST_P(golden_finetune_cases, whole_network__has_torchs_gradients_and_steps) {
  const json& c = golden()["cases"][GetParam()];
  const FinetuneCase run(c);
  const GoldenSteps steps{run.weights(), run.inputs(), golden()["adamw"]};
  expect_gradients(run.loss(), steps, c["whole"]);
  expect_steps(run.loss(), steps, c["whole"]);
}

TEST_P(golden_finetune_cases, adapters__have_the_gradients_and_steps_of_peft_and_lycoris) {
  const json& c = golden()["cases"][GetParam()];
  const FinetuneCase run(c);
  for (const std::string& kind : adapters::trainable_kinds()) {
    if (!c.contains(kind)) continue;
    SCOPED_TRACE(kind);
    const auto adapter = run.adapter(kind);
    const Graph loss = adapter.adapted(run.loss());
    const GoldenSteps steps{adapter.weights(), run.inputs(), golden()["adamw"]};
    expect_gradients(loss, steps, c[kind]);
    expect_steps(loss, steps, c[kind]);
  }
}

TEST(golden_finetune, every_kind_that_can_be_trained__is_recorded) {
  for (const std::string& kind : adapters::trainable_kinds())
    EXPECT_TRUE(golden()["cases"]["eps"].contains(kind) ||
                read_golden("finetune_dora")["cases"].contains(kind))
        << kind;
}

INSTANTIATE_TEST_SUITE_P(eps_and_v, golden_finetune_cases,
                         ::testing::Values("eps", "v_min_snr", "v_zero_snr"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ebb::golden_finetune_test
