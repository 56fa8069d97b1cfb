// Latents of denoisers and of autoencoders, and what folders say of them.
#include "pipeline/latent_space.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

const LatentScaling playground{{.factor = 8, .of = "x", .scale = 0.5},
                               {-1.6574, 1.886, -1.383, 2.5155},
                               {8.4927, 5.9022, 6.5498, 5.2299}};

// As diffusers' pipelines of XL compute: (z - mean) * scale / std, and z * std / scale + mean.
TEST(latent_space, channels__are_normalised_and_back) {
  const Tensor z = tensor_of<float>({1, 2, 3, 4, -1, -2, -3, 0.5f}, {1, 1, 2, 4});
  Tensor x = z.clone();
  to_denoiser(x, playground);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_FLOAT_EQ(x.span<float>()[i],
                    static_cast<float>((double{z.span<float>()[i]} - playground.mean[i % 4]) * 0.5 /
                                       playground.deviation[i % 4]));
  to_autoencoder(x, playground);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(x.span<float>()[i], z.span<float>()[i], 1e-6);
  Tensor d = tensor_of<float>({1, 1, 1, 1}, {1, 1, 1, 4});
  scale_deviation(d, playground);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(d.span<float>()[i], static_cast<float>(0.5 / playground.deviation[i]));
  Tensor three(DType::f32, {1, 1, 1, 3});
  expect_error([&] { to_denoiser(three, playground); },
               "latents: the model has 4 channels of means and deviations, the autoencoder 3");
}

TEST(latent_space, autoencoder_of_the_denoisers_numbers__leaves_nothing_to_scale) {
  const NamedModel kl = find_component("autoencoder_kl"), tiny = find_component("taesd");
  EXPECT_EQ(read_by({kl.model, kl.config, ""}, playground).mean, playground.mean);
  const LatentScaling plain = read_by({tiny.model, tiny.config, ""}, playground);
  EXPECT_EQ(plain.space.scale, 1);
  EXPECT_TRUE(plain.mean.empty() && plain.deviation.empty());
  EXPECT_EQ(plain.space.factor, 8);
}

TEST(latent_space, vae_config_of_a_folder__is_heeded) {
  const testing::Folder folder;
  const auto read = [&](const std::string& json) {
    NamedModel m = find_model("sdxl");
    testing::put_file(folder / "config.json", json);
    read_latent_scaling(m.config, folder / "config.json");
    check(*m.model, m.config);
    return latent_scaling(*m.model, m.config);
  };
  EXPECT_EQ(read("{}").space.scale, 0.13025);
  EXPECT_EQ(read(R"({"scaling_factor": null, "latents_mean": null})").space.scale, 0.13025);
  EXPECT_EQ(read(R"({"scaling_factor": 0.5, "shift_factor": 0.25})").space.scale, 0.5);
  EXPECT_EQ(read(R"({"scaling_factor": 0.5, "shift_factor": 0.25})").space.shift, 0.25);
  // diffusers takes means with deviations only
  EXPECT_TRUE(read(R"({"latents_mean": [1, 2, 3, 4]})").mean.empty());
  const LatentScaling both =
      read(R"({"latents_mean": [1, 2, 3, 4.5], "latents_std": [5, 6, 7, 8]})");
  EXPECT_EQ(both.mean, (std::vector<double>{1, 2, 3, 4.5}));
  EXPECT_EQ(both.deviation, (std::vector<double>{5, 6, 7, 8}));
  for (const char* bad : {"[]", "no", R"({"scaling_factor": "1"})", R"({"scaling_factor": 0})",
                          R"({"latents_mean": 1, "latents_std": [1]})",
                          R"({"latents_mean": [1], "latents_std": [1, 2]})",
                          R"({"latents_mean": [1], "latents_std": [-1]})",
                          R"({"latents_mean": ["1"], "latents_std": [1]})"})
    expect_error([&] { read(bad); }, "vae config: ");
  expect_error([&] { read(R"({"latents_mean": [1], "latents_std": [1]})"); },
               "must be of 4 channels (1)");
}

}  // namespace
}  // namespace ebb
