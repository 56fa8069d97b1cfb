// Files of Stable Diffusion's U-Nets as they are published: both layouts, all in one, and what they
// say of the network's prediction.
#include <gtest/gtest.h>

#include "base/json.h"
#include "io/safetensors.h"
#include "nn/ldm_names.h"
#include "pipeline/latent_space.h"
#include "pipeline/load_model.h"
#include "support/files.h"
#include "support/hashed_weights.h"

namespace ebb::testing::ldm_files_test {
namespace {

using Tensors = std::vector<io::NamedTensor>;
using Metadata = std::map<std::string, std::string>;

// The real topology and width of the text, few channels.
NamedModel small(const char* preset) {
  NamedModel m = find_model(preset);
  set_fields_json(m.config.fields(), R"({"model_channels": 64})", "test");
  for (const Field& f : m.config.fields())
    if (f.name == "channel_mult")
      for (int64_t& mult : **std::get_if<std::vector<int64_t>*>(&f.ref)) mult = 1;
  return m;
}

Tensors tensors_of(const NamedModel& m, const std::string& prefix) {
  Tensors out;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    out.push_back({prefix + w.name, hashed_file_tensor(w.name, nn::file_shape(w))});
  return out;
}

class LdmFiles : public ::testing::Test {
 protected:
  LoadedModel load(const Tensors& tensors, const Metadata& metadata = {}) {
    const std::string path = folder_ / "model.safetensors";
    io::write_safetensors(path, tensors, metadata);
    return load_model(path);
  }
  Folder folder_;
};

// The last weight that a network has, as its plans read it.
const StoredWeight& last(const LoadedModel& m) {
  return m.weights->weights().find("out.2.weight")->second;
}

std::vector<uint8_t> bytes_of(const StoredWeight& w) {
  std::vector<uint8_t> out(static_cast<size_t>(w.type.bytes()));
  w.read(0, out);
  return out;
}

constexpr const char* sd2_bias = "output_blocks.11.1.transformer_blocks.0.norm1.bias";

// Hashed biases have a deviation of 0.1 / sqrt(3).
void scale(Tensors& tensors, const std::string& name, float factor) {
  for (io::NamedTensor& t : tensors)
    if (t.name == name)
      for (float& v : t.tensor.span<float>()) v *= factor;
}

Tensor marker() { return Tensor(DType::f32, {1}); }

}  // namespace

TEST_F(LdmFiles, original_and_diffusers_and_all_in_one__are_one_network) {
  const NamedModel m = small("sdxl");
  const LoadedModel plain = load(tensors_of(m, ""));
  EXPECT_EQ(plain.config.text(), [&] {
    ModelConfig c = m.config;
    return c.text();
  }());
  Tensors all = tensors_of(m, "model.diffusion_model.");
  all.push_back({"first_stage_model.decoder.conv_in.weight", marker()});
  all.push_back({"alphas_cumprod", marker()});
  const auto bytes = bytes_of(last(plain));
  const LoadedModel one = load(all);
  EXPECT_EQ(one.config.text(), plain.config.text());
  EXPECT_EQ(bytes_of(last(one)), bytes);
  Tensors renamed;
  const nn::FilePlaces places = m.model->places(
      m.config, {{"conv_in.weight", {1}}, {"down_blocks.0.resnets.0.conv1.weight", {1}}});
  for (const io::NamedTensor& t : tensors_of(m, ""))
    renamed.push_back({places(t.name).name, t.tensor});
  const LoadedModel diffusers = load(renamed);
  EXPECT_EQ(diffusers.config.text(), plain.config.text());
  EXPECT_EQ(bytes_of(last(diffusers)), bytes);
}

TEST_F(LdmFiles, stable_diffusion_2__predicts_what_its_last_transformer_tells) {
  const NamedModel m = small("sd2");
  const LoadedModel eps = load(tensors_of(m, ""));
  EXPECT_EQ(eps.diffusion.precond, "eps");
  EXPECT_EQ(eps.diffusion.betas, "scaled_linear");
  EXPECT_EQ(eps.config.common().image_size, 64);
  Tensors wide = tensors_of(m, "");
  scale(wide, sd2_bias, 2);
  const LoadedModel v = load(wide);
  EXPECT_EQ(v.diffusion.precond, "v");
  EXPECT_EQ(v.config.common().image_size, 96);
  EXPECT_EQ(load(wide, {{"modelspec.prediction_type", "epsilon"}}).diffusion.precond, "eps");
  // inpainting has one prediction
  Tensors inpaint = tensors_of(small("sd2_inpaint"), "");
  scale(inpaint, sd2_bias, 2);
  EXPECT_EQ(load(inpaint).diffusion.precond, "eps");
}

TEST_F(LdmFiles, resolution_of_metadata__is_taken_if_pictures_can_be_so_large) {
  const Tensors plain = tensors_of(small("sd2"), "");
  const auto side = [&](const char* said) {
    return load(plain, {{"modelspec.resolution", said}}).config.common().image_size;
  };
  EXPECT_EQ(side("768x768"), 96);
  EXPECT_EQ(side("64x64"), 8);
  EXPECT_EQ(side("2048x2048"), 256);  // four times 512
  for (const char* said : {"8x8", "56x56", "2056x2056", "516x516", "512x768", "768", "x", ""})
    EXPECT_EQ(side(said), 64) << said;
}

TEST_F(LdmFiles, markers__say_what_xl_predicts) {
  const Tensors plain = tensors_of(small("sdxl"), "model.diffusion_model.");
  const auto with = [&](const std::vector<const char*>& names) {
    Tensors all = plain;
    for (const char* name : names) all.push_back({name, marker()});
    return load(all).diffusion;
  };
  EXPECT_EQ(with({}).precond, "eps");
  EXPECT_EQ(with({}).zero_snr, "no");
  EXPECT_EQ(with({"v_pred"}).precond, "v");
  EXPECT_EQ(with({"v_pred", "ztsnr"}).zero_snr, "comfy");
  EXPECT_EQ(with({"edm_mean", "edm_std"}).precond, "edm");
  expect_error([&] { with({"edm_vpred.sigma_max"}); }, "(CosXL), which is not implemented");
  EXPECT_EQ(load(plain, {{"modelspec.prediction_type", "v"}}).diffusion.precond, "v");
}

// Playground 2.5's latents are normalised by channel, to a deviation of 0.5.
TEST_F(LdmFiles, edm_markers__say_how_latents_are_normalised) {
  const Tensors plain = tensors_of(small("sdxl"), "model.diffusion_model.");
  const auto latents = [&](const Tensors& more) {
    Tensors all = plain;
    all.insert(all.end(), more.begin(), more.end());
    const LoadedModel m = load(all);
    return latent_scaling(*m.model, m.config);
  };
  const LatentScaling xl = latents({}), published = latents({{"edm_mean", marker()}}),
                      own = latents({{"edm_mean", tensor_of<float>({1, 2, 3, 4}, {1, 4, 1, 1})},
                                     {"edm_std", tensor_of<float>({5, 6, 7, 8}, {1, 4, 1, 1})}});
  EXPECT_EQ(xl.space.scale, 0.13025);
  EXPECT_TRUE(xl.mean.empty() && xl.deviation.empty());
  EXPECT_EQ(published.space.scale, 0.5);
  EXPECT_EQ(published.mean, (std::vector{-1.6574, 1.886, -1.383, 2.5155}));
  EXPECT_EQ(published.deviation, (std::vector{8.4927, 5.9022, 6.5498, 5.2299}));
  EXPECT_EQ(own.space.scale, 0.5);
  EXPECT_EQ(own.mean, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(own.deviation, (std::vector<double>{5, 6, 7, 8}));
  expect_error(
      [&] {
        latents({{"edm_std", tensor_of<float>({5, 6, 7}, {1, 3, 1, 1})}});
      },
      "ldm_unet: latent_mean and latent_deviation must be of 4 channels (3)");
  expect_error(
      [&] {
        latents({{"edm_std", tensor_of<float>({5, 6, 7, 0}, {1, 4, 1, 1})}});
      },
      "ldm_unet: latent_deviation must be above 0");
}

}  // namespace ebb::testing::ldm_files_test
