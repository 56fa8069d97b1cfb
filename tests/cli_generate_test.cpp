// `ebb generate` on a checkpoint of Stable Diffusion's layout with small hashed networks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "pipeline/file_hash.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

using CliGenerate = testing::GenerateProgram;

TEST_F(CliGenerate, picture__has_the_size_and_says_how_it_was_made) {
  const Output out = run_program(
      generate(whole(), "--prompt 'a (red:1.3) fox, [day:night:1]' --negative blurry --seed 5"));
  ASSERT_EQ(out.code, 0) << out.text;
  const Tensor image = io::read_image(png());
  EXPECT_EQ(image.shape(), (Shape{48, 64, 3}));
  const auto text = io::read_png_text(png());
  EXPECT_EQ(text.at("parameters"),
            "a (red:1.3) fox, [day:night:1]\nNegative prompt: blurry\nSteps: 2, Sampler: DPM++ 2M, "
            "Schedule type: Karras, CFG scale: 7, Seed: 5, Size: 64x48, Model hash: " +
                sha256_of(folder_ / "sd.safetensors").substr(0, 10) + ", Model: sd, Version: ebb " +
                text.at("Software").substr(4));
  const auto settings = nlohmann::json::parse(text.at("ebb"));
  EXPECT_EQ(settings.at("prompt"), "a (red:1.3) fox, [day:night:1]");
  EXPECT_EQ(settings.at("seed"), 5);
}

TEST_F(CliGenerate, jpeg_and_webp__carry_the_settings) {
  const std::string model = whole();
  for (const char* name : {"x.JPG", "x.webp"}) {
    const std::string file = folder_ / name;
    const Output out = run_program(str("generate --device cpu --model ", model,
                                       " --prompt fox --steps 1 --size 64 --out ", file));
    ASSERT_EQ(out.code, 0) << out.text;
    auto text = io::read_picture_text(file);
    EXPECT_EQ(nlohmann::json::parse(text["ebb"]).at("steps"), 1);
    EXPECT_EQ(text["parameters"].substr(0, 13), "fox\nSteps: 1,");
    EXPECT_EQ(io::read_image(file).shape(), (Shape{64, 64, 3}));
  }
}

TEST_F(CliGenerate, prompt__decides_the_picture_and_a_seed_repeats_it) {
  const std::string model = whole();
  const auto pixels = [&](const std::string& flags) {
    // in f32: a chunk that says the same changes less than bf16 rounds
    const Output out = run_program(generate(model, flags + " --dtype f32"));
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
  EXPECT_EQ(error_line(generate("nowhere.safetensors", "--prompt fox")),
            "generate: --model does not exist  nowhere.safetensors");
  EXPECT_EQ(error_line(generate(model, "--prompt '<lora:ink:1> fox'")),
            "lora: <lora:ink> needs --lora-dir FOLDER");
  EXPECT_EQ(error_line(generate(model, "--prompt fox --clip-skip 3")),
            "generate: --clip-skip 3 leaves no layer of an encoder with 2");
  EXPECT_EQ(error_line(generate(model, "--prompt fox --n 0")),
            "generate: --n must be 1 to 10000 (got 0)");
  EXPECT_FALSE(std::filesystem::exists(png()));
}

}  // namespace
}  // namespace ebb
