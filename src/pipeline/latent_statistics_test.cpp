#include "pipeline/latent_statistics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "nn/hashed_weights.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/latent_encoder.h"
#include "support/golden_distance.h"
#include "support/small_checkpoint.h"

namespace ebb::testing {
namespace {

ModelConfig playground() {
  ModelConfig config = find_component("sdxl").config;
  const std::vector<Field> fields = config.fields();
  set_field(find_field(fields, "prediction", "config"), "edm");
  return config;
}

}  // namespace

// z = (x - mean) / std * 0.5, as diffusers has it for "latents_mean" and "latents_std".
TEST(latent_statistics, latents_of_playground__are_normalised_by_channel) {
  const Model& unet = *find_component("sdxl").model;
  const LatentStatistics s = latent_statistics(unet, playground());
  ASSERT_EQ(s.mean.size(), 4u);
  EXPECT_TRUE(latent_statistics(unet, find_component("sdxl").config).mean.empty());
  const LatentSpace space = *unet.latents(playground());
  EXPECT_EQ(space.scale, 0.5);
  EXPECT_EQ(unet.latents(find_component("sdxl").config)->scale, 0.13025);

  const nlohmann::json run = read_golden("text_to_image")["runs"][0];
  const Context context = open_context("cpu", {.threads = 2});
  const LoadedComponent vae = component("autoencoder_kl", run["autoencoder"]);
  const LatentSpace plain{.factor = 8, .of = "x"};
  LatentEncoder by_channel(vae, space, DType::f32, context, s),
      as_it_is(vae, plain, DType::f32, context);
  const Tensor pixels = nn::hashed_input("pixels", {1, 64, 64, 3});
  const EncodedImage a = by_channel.encode(pixels), b = as_it_is.encode(pixels);
  const auto z = a.mean.span<float>(), x = b.mean.span<float>();
  const auto zd = a.deviation.span<float>(), xd = b.deviation.span<float>();
  for (size_t i = 0; i < z.size(); ++i) {
    EXPECT_NEAR(z[i], (x[i] - s.mean[i % 4]) / s.deviation[i % 4] * 0.5, 1e-5) << i;
    EXPECT_NEAR(zd[i], xd[i] / s.deviation[i % 4] * 0.5, 1e-5) << i;
  }
  LatentDecoder back(vae, space, DType::f32, context, {}, s),
      plainly(vae, plain, DType::f32, context);
  const Tensor p = back.decode(a.mean), q = plainly.decode(b.mean);
  for (size_t i = 0; i < p.span<float>().size(); ++i)
    EXPECT_NEAR(p.span<float>()[i], q.span<float>()[i], 1e-4) << i;
}

TEST(latent_statistics, config_of_the_autoencoder__says_whose_latents_they_are) {
  const auto folder = std::filesystem::temp_directory_path() / "ebb_latent_statistics";
  std::filesystem::create_directories(folder);
  const Model& unet = *find_component("sdxl").model;
  const auto taken = [&](const std::string& json) {
    std::ofstream(folder / "config.json") << json;
    ModelConfig config = find_component("sdxl").config;
    take_latent_statistics(unet, config, (folder / "model.safetensors").string());
    return !latent_statistics(unet, config).mean.empty();
  };
  EXPECT_FALSE(taken(R"({"scaling_factor": 0.13025, "latents_mean": null})"));
  EXPECT_TRUE(taken(R"({"latents_mean": [-1.6574, 1.886, -1.383, 2.5155],
                        "latents_std": [8.4927, 5.9022, 6.5498, 5.2299]})"));
  EXPECT_THROW(taken(R"({"latents_mean": [1, 2, 3, 4], "latents_std": [1, 1, 1, 1]})"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace ebb::testing
