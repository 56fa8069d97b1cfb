// `ebb generate` on a checkpoint of Stable Diffusion's layout with small hashed networks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "nn/hashed_weights.h"
#include "nn/storage.h"
#include "support/program.h"
#include "text/clip_vocabulary.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

// The config of a model with these fields.
ModelConfig config_of(const Model& model, const std::string& fields) {
  ModelConfig c = model.presets[0].config;
  parse_fields(c.fields(), fields);
  return c;
}

class CliGenerate : public testing::Program {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    Program::SetUp();
  }
  struct Part {
    std::string model, fields, prefix;
  };
  static Part unet() {
    return {"ldm_unet",
            "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
            "middle_depth=1 output_depths=[0,0,1,1] num_heads=0 num_head_channels=64 context=64 "
            "conv_projection=false}",
            "model.diffusion_model."};
  }
  static Part text() {
    return {"clip_text", "{width=64 layers=2 heads=1 hidden=64}", "cond_stage_model.transformer."};
  }
  static Part autoencoder() {
    return {"autoencoder_kl", "{channels=32 channel_mult=[1,1,1,1] res_blocks=1}",
            "first_stage_model."};
  }

  // A file with these components.
  std::string checkpoint(const std::vector<Part>& parts, const std::string& name = "sd") const {
    std::vector<io::NamedTensor> tensors;
    for (const Part& p : parts) {
      const Model& model = *find_component(p.model).model;
      for (const nn::Weight& w : weights_of(model, config_of(model, p.fields)))
        tensors.push_back({p.prefix + w.name, nn::hashed_file_tensor(w.name, nn::file_shape(w))});
    }
    const std::string file = folder_ / (name + ".safetensors");
    io::write_safetensors(file, tensors, {});
    return file;
  }
  std::string whole() const { return checkpoint({unet(), text(), autoencoder()}); }
  std::string png(const std::string& name = "x") const { return folder_ / (name + ".png"); }
  std::string generate(const std::string& model, const std::string& flags) const {
    return str("generate --device cpu --model ", model, " --steps 2 --size 64x48 --out ", png(),
               " ", flags);
  }
};

TEST_F(CliGenerate, picture__has_the_size_and_says_how_it_was_made) {
  const Output out = run_program(
      generate(whole(), "--prompt 'a (red:1.3) fox, [day:night:1]' --negative blurry --seed 5"));
  ASSERT_EQ(out.code, 0) << out.text;
  const Tensor image = io::read_image(png());
  EXPECT_EQ(image.shape(), (Shape{48, 64, 3}));
  const auto text = io::read_png_text(png());
  EXPECT_EQ(text.at("parameters"),
            "a (red:1.3) fox, [day:night:1]\nNegative prompt: blurry\nSteps: 2, Sampler: DPM++ 2M, "
            "Schedule type: Karras, CFG scale: 7, Seed: 5, Size: 64x48, Model: sd, Version: ebb " +
                text.at("Software").substr(4));
  EXPECT_EQ(text.at("prompt"), "a (red:1.3) fox, [day:night:1]");
}

TEST_F(CliGenerate, jpeg_and_webp__carry_the_settings) {
  const std::string model = whole();
  for (const char* name : {"x.JPG", "x.webp"}) {
    const std::string file = folder_ / name;
    const Output out = run_program(str("generate --device cpu --model ", model,
                                       " --prompt fox --steps 1 --size 64 --out ", file));
    ASSERT_EQ(out.code, 0) << out.text;
    auto text = io::read_picture_text(file);
    EXPECT_EQ(text["steps"], "1");
    EXPECT_EQ(text["parameters"].substr(0, 13), "fox\nSteps: 1,");
    EXPECT_EQ(io::read_image(file).shape(), (Shape{64, 64, 3}));
  }
}

TEST_F(CliGenerate, prompt__decides_the_picture_and_a_seed_repeats_it) {
  const std::string model = whole();
  const auto pixels = [&](const std::string& flags) {
    const Output out = run_program(generate(model, flags));
    EXPECT_EQ(out.code, 0) << out.text;
    const Tensor t = io::read_image(png());
    return std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end());
  };
  const auto fox = pixels("--prompt fox --seed 1");
  EXPECT_EQ(fox, pixels("--prompt fox --seed 1"));
  EXPECT_NE(fox, pixels("--prompt fox --seed 2"));
  EXPECT_NE(fox, pixels("--prompt 'an old harbour' --seed 1"));
  EXPECT_NE(fox, pixels("--prompt fox --negative water --seed 1"));
  EXPECT_NE(fox, pixels("--prompt '(fox:1.5)' --seed 1"));
  EXPECT_NE(fox, pixels("--prompt fox --clip-skip 2 --seed 1"));
  // of two chunks, against a negative prompt of one
  EXPECT_NE(fox, pixels("--prompt 'fox BREAK fox' --seed 1"));
}

TEST_F(CliGenerate, parts_of_other_files__win) {
  const std::string model = checkpoint({unet()}, "unet");
  EXPECT_EQ(error_line(generate(model, "--prompt fox")).substr(0, 56),
            "generate: the checkpoint has no autoencoder that makes p");
  const std::string parts = checkpoint({text(), autoencoder()}, "parts");
  const Output out =
      run_program(generate(model, str("--prompt fox --vae ", parts, " --text-encoder ", parts)));
  EXPECT_EQ(out.code, 0) << out.text;
  const std::string missing = error_line(generate(model, str("--prompt fox --vae ", parts)));
  EXPECT_NE(missing.find("text of 64 channels"), missing.npos) << missing;
}

TEST_F(CliGenerate, mistakes__are_named_before_any_work) {
  const std::string model = whole();
  EXPECT_EQ(error_line("generate --prompt fox"), "generate: --model FILE must name a checkpoint");
  EXPECT_EQ(error_line(generate("nowhere.safetensors", "--prompt fox")),
            "generate: --model does not exist  nowhere.safetensors");
  EXPECT_EQ(error_line(generate(model, "--prompt 'a AND b'")),
            "generate: prompts of several parts (AND) are not there yet (2 parts)");
  EXPECT_EQ(error_line(generate(model, "--prompt '<lora:ink:1> fox'")),
            "generate: LoRAs in prompts are not there yet (<lora:ink>)");
  EXPECT_EQ(error_line(generate(model, "--prompt fox --clip-skip 3")),
            "generate: --clip-skip 3 leaves no layer of an encoder with 2");
  EXPECT_EQ(error_line(generate(model, "--prompt fox --n 0")),
            "generate: n must be 1 to 10000 (got 0)");
  EXPECT_FALSE(std::filesystem::exists(png()));
}

}  // namespace
}  // namespace ebb
