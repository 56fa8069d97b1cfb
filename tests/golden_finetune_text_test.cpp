// Training steps of small U-Nets with their text encoders against diffusers' and transformers'
// networks with torch's autograd and AdamW (tools/golden/finetune_text_golden.py).
#include <gtest/gtest.h>

#include "support/finetune_text_case.h"
#include "support/golden_steps.h"

namespace ebb::golden_finetune_text_test {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() { return TextCase::golden(); }

class golden_finetune_text_cases : public ::testing::TestWithParam<const char*> {};

TEST_P(golden_finetune_text_cases, whole_networks__have_torchs_gradients_and_steps) {
  const json& c = golden()["cases"][GetParam()];
  const TextCase run(c);
  const GoldenSteps steps = run.steps(run.weights());
  expect_gradients(run.loss(), steps, c["whole"]);
  expect_steps(run.loss(), steps, c["whole"]);
}

TEST_P(golden_finetune_text_cases, adapters__have_the_gradients_and_steps_of_peft_and_lycoris) {
  const json& c = golden()["cases"][GetParam()];
  const TextCase run(c);
  for (const std::string& kind : adapters::trainable_kinds()) {
    if (!c.contains(kind)) continue;
    SCOPED_TRACE(kind);
    const auto adapter = run.adapter(kind);
    const Graph loss = adapter.adapted(run.loss());
    const GoldenSteps steps = run.steps(adapter.weights());
    expect_gradients(loss, steps, c[kind]);
    expect_steps(loss, steps, c[kind]);
  }
}

// Textual inversion: vectors that are a token's row make its loss and have its row's gradient.
TEST_P(golden_finetune_text_cases, vectors_in_place_of_a_token__have_its_gradient) {
  const json& c = golden()["cases"][GetParam()];
  const TextCase run(c);
  const int64_t token = c["tokens"][0][1];
  const auto table = [](size_t e) {
    return text_prefix(e) + "text_model.embeddings.token_embedding.weight";
  };
  std::vector<std::string> tables, vectors;
  for (size_t e = 0; e < run.encoders(); ++e) {
    tables.push_back(table(e));
    vectors.push_back(vectors_name(e));
  }
  const Context context = open_context("cpu", {.threads = 1});
  Plan whole(gradients(run.loss(), "loss", tables), context);
  Plan own(gradients(run.loss(1), "loss", vectors), context);
  std::map<std::string, Tensor> rows;
  for (const nn::Weight& w : run.weights()) {
    const Tensor value = hashed_weight(w);
    whole.bind(w.name, value);
    own.bind(w.name, value);
    for (size_t e = 0; e < run.encoders(); ++e)
      if (w.name == table(e)) own.bind(vectors_name(e), value.rows(token, token + 1).clone());
  }
  const NamedTensors a = whole.run(run.inputs()), b = own.run(run.inputs_with_vector(token));
  EXPECT_EQ(a.at("loss").span<float>()[0], b.at("loss").span<float>()[0]);
  for (size_t e = 0; e < run.encoders(); ++e) {
    const Tensor want = a.at("grad." + table(e)).rows(token, token + 1);
    const auto x = want.span<float>(), y = b.at("grad." + vectors_name(e)).span<float>();
    ASSERT_EQ(x.size(), y.size());
    float largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      EXPECT_NEAR(x[i], y[i], 1e-5F * std::abs(x[i]) + 1e-9F) << e << ' ' << i;
    }
    EXPECT_GT(largest, 1e-6F);
  }
}

INSTANTIATE_TEST_SUITE_P(sd1_and_xl, golden_finetune_text_cases, ::testing::Values("sd1", "xl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ebb::golden_finetune_text_test
