// Training steps of decomposed adapters against PEFT's layers, and of the kinds that it does not
// decompose against the formula in torch (tools/golden/finetune_dora_golden.py).
#include <gtest/gtest.h>

#include "support/finetune_case.h"
#include "support/finetune_text_case.h"
#include "support/golden_steps.h"

namespace ebb::golden_finetune_dora_test {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() {
  static const json j = read_golden("finetune_dora");
  return j;
}

// Magnitudes are not those that an adapter begins with, so that they count.
void add_given(GoldenSteps& to, const adapters::TrainableAdapter& adapter) {
  NamedTensors networks;
  for (const nn::Weight& w : to.weights)
    if (!w.name.starts_with("adapter.")) networks[w.name] = hashed_weight(w);
  to.given = adapter.given(networks);
  to.undecayed = nn::without_decay(adapter.weights());
  for (auto& [name, t] : to.given) {
    if (!name.ends_with(".magnitude")) continue;
    const Tensor more = nn::hashed_file_tensor(name, t.shape());
    for (size_t i = 0; i < t.span<float>().size(); ++i)
      t.span<float>()[i] *= 1 + more.span<float>()[i];
  }
}

class golden_finetune_dora : public ::testing::TestWithParam<const char*> {};

TEST_P(golden_finetune_dora, adapters__have_the_gradients_and_steps_of_peft) {
  const json& c = golden()["cases"][GetParam()];
  const FinetuneCase run(FinetuneCase::golden()["cases"]["eps"]);
  const auto adapter = run.adapter(c["kind"], true, c["target"]);
  const Graph loss = adapter.adapted(run.loss());
  GoldenSteps steps{adapter.weights(), run.inputs(), FinetuneCase::golden()["adamw"]};
  add_given(steps, adapter);
  expect_gradients(loss, steps, c);
  expect_steps(loss, steps, c);
}

INSTANTIATE_TEST_SUITE_P(kinds, golden_finetune_dora,
                         ::testing::Values("dora", "filters", "loha", "lokr"),
                         [](const auto& info) { return std::string(info.param); });

TEST(golden_finetune_dora_texts, adapters_of_both_networks__have_the_gradients_and_steps_of_peft) {
  const json& c = golden()["cases"]["texts"];
  const TextCase run(TextCase::golden()["cases"]["sd1"]);
  const auto adapter = run.adapter("dora");
  const Graph loss = adapter.adapted(run.loss());
  GoldenSteps steps = run.steps(adapter.weights());
  add_given(steps, adapter);
  expect_gradients(loss, steps, c);
  expect_steps(loss, steps, c);
}

}  // namespace
}  // namespace ebb::golden_finetune_dora_test
