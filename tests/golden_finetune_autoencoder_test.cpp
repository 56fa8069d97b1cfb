// Training steps of a small autoencoder against diffusers' network with torch's autograd and AdamW
// (tools/golden/finetune_autoencoder_golden.py).
#include <gtest/gtest.h>

#include "pipeline/train_autoencoder.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"

namespace ebb {
namespace {

using namespace ebb::testing;

TEST(golden_finetune_autoencoder, whole__has_torchs_gradients_and_steps) {
  const nlohmann::json golden = read_golden("finetune_autoencoder");
  const Model& model = *find_component("autoencoder_kl").model;
  const Component c{&model, LdmCase::configured(model, golden["config"]), ""};
  const Shape images(golden["shape"].get<std::vector<int64_t>>());
  const Shape latents(golden["latents"].get<std::vector<int64_t>>());
  Graph g;
  const auto noise = [&](const Shape& shape) {
    EXPECT_EQ(shape, latents);
    return g.input("noise", {DType::f32, shape});
  };
  const Value x = g.input("images", {DType::f32, images});
  g.output("loss", autoencoder_loss(c, x, noise, golden["kl_weight"]).loss);
  const GoldenSteps steps{weights_of(model, c.config),
                          {{"images", hashed_input("input.images", images)},
                           {"noise", hashed_input("input.noise", latents)}},
                          golden["adamw"]};
  expect_gradients(g, steps, golden["whole"]);
  expect_steps(g, steps, golden["whole"]);
}

}  // namespace
}  // namespace ebb
