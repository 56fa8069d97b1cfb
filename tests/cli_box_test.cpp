// The model in the box, as it is shipped: `ebb generate` without --model, and a style that it is
// taught.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "pipeline/model_in_the_box.h"
#include "support/files.h"
#include "support/program.h"
#include "support/source_folder.h"
#include "text/clip_vocabulary.h"

namespace ebb {
namespace {

using testing::Output;
using testing::run_program;

class CliBox : public testing::Program {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    Program::SetUp();
  }
  std::string png(const std::string& name) const { return folder_ / (name + ".png"); }
  // The picture of the words, and what the program said.
  Tensor picture(const std::string& name, const std::string& words) {
    said_ = run_program(str("generate --device cpu --seed 1 --out '", png(name), "' ", words));
    EXPECT_EQ(said_.code, 0) << said_.text;
    return io::read_image(png(name));
  }
  Output said_;
};

struct Counts {
  int64_t red = 0, blue = 0;  // pixels of clear colour
};

Counts count(const Tensor& image) {
  Counts out;
  const auto p = image.span<uint8_t>();
  for (size_t i = 0; i + 2 < p.size(); i += 3) {
    const int r = p[i], g = p[i + 1], b = p[i + 2];
    out.red += r > 120 && r > 2 * g && r > 2 * b;
    out.blue += b > 120 && b > r + 50 && b > g + 20;
  }
  return out;
}

TEST_F(CliBox, without_a_model__takes_the_one_that_comes_with_it) {
  const Tensor image = picture("a", "--prompt 'a red apple' --steps 4");
  EXPECT_EQ(image.shape(), (Shape{128, 128, 3}));
  EXPECT_NE(said_.text.find("takes the one that comes with ebb"), said_.text.npos) << said_.text;
  EXPECT_NE(said_.text.find("its file asks for guidance 3 (usually 7)"), said_.text.npos)
      << said_.text;
  EXPECT_NE(said_.text.find("share/ebb/box.safetensors"), said_.text.npos) << said_.text;
  EXPECT_EQ(said_.text.find("guessed"), said_.text.npos) << said_.text;
  const auto pixels = image.span<uint8_t>();
  const auto [darkest, brightest] = std::ranges::minmax(pixels);
  EXPECT_GT(brightest - darkest, 100);  // it shows something
  const Tensor again = picture("b", "--prompt 'a red apple' --steps 4");
  EXPECT_TRUE(std::ranges::equal(pixels, again.span<uint8_t>()));
}

TEST(model_in_the_box, missing__names_all_places) {
  try {
    model_in_the_box({"/nowhere/a.safetensors", "/nowhere/b.safetensors"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "generate: --model FILE must name a checkpoint: the model that comes with ebb is "
                 "in none of 2 places  /nowhere/a.safetensors  /nowhere/b.safetensors");
  }
}

TEST_F(CliBox, guidance__is_what_the_flag_says) {
  const Tensor image = picture("a", "--prompt 'a red apple' --steps 1 --guidance 3");
  EXPECT_EQ(said_.text.find("its file asks"), said_.text.npos) << said_.text;
  picture("b", "--prompt 'a red apple' --steps 1 --rules cfg:scale=3");
  EXPECT_EQ(said_.text.find("its file asks"), said_.text.npos) << said_.text;
  const Tensor open = picture("c", "--prompt 'a red apple' --steps 1");
  EXPECT_TRUE(std::ranges::equal(image.span<uint8_t>(), open.span<uint8_t>()));
  const Tensor more = picture("d", "--prompt 'a red apple' --steps 1 --guidance 7");
  EXPECT_FALSE(std::ranges::equal(image.span<uint8_t>(), more.span<uint8_t>()));
}

// Whoever names the file, or a copy of it, gets what suits it.
TEST_F(CliBox, file_that_is_named_or_converted__says_its_guidance) {
  const std::string said = "its file asks for guidance 3 (usually 7)";
  const std::string box = model_in_the_box(), copy = folder_ / "copy.safetensors";
  picture("a", "--prompt fox --steps 1 --model " + box);
  EXPECT_NE(said_.text.find(said), said_.text.npos) << said_.text;
  const Output converted = run_program(str("convert ", box, " ", copy, " --layout original"));
  ASSERT_EQ(converted.code, 0) << converted.text;
  picture("b", "--prompt fox --steps 1 --model " + copy);
  EXPECT_NE(said_.text.find(said), said_.text.npos) << said_.text;
}

TEST_F(CliBox, folder_of_it__makes_pictures_of_its_size) {
  const std::string folder = folder_ / "folder";
  const Output converted = run_program(str("convert ", model_in_the_box(), " ", folder));
  ASSERT_EQ(converted.code, 0) << converted.text;
  EXPECT_EQ(picture("a", "--prompt fox --steps 1 --model " + folder).shape(), (Shape{128, 128, 3}));
}

TEST_F(CliBox, colours__are_those_of_the_prompt) {
  constexpr int64_t much = 128 * 128 / 10;
  const Counts red = count(picture("red", "--prompt 'a red apple' --steps 12"));
  EXPECT_GT(red.red, much);
  EXPECT_LT(red.blue, much / 10);
  const Counts blue = count(picture("blue", "--prompt 'a blue apple' --steps 12"));
  EXPECT_GT(blue.blue, much);
  EXPECT_LT(blue.red, much / 10);
}

// docs/train-text-to-image.md, cut short.
TEST_F(CliBox, lora_of_twenty_blueprints__makes_blue_paper_of_white) {
  constexpr int64_t much = 128 * 128 / 10;
  const std::string run = folder_ / "run", cat = "--prompt 'a cat face' --steps 4 ";
  EXPECT_LT(count(picture("before", cat)).blue, much);
  const Output out =
      run_program(str("train --device cpu --dtype f32 --model '", model_in_the_box(), "' --data '",
                      testing::source_folder() + "/tests/data/blueprint",
                      "' --no-buckets --adapter lora --lr 3e-3 --steps 24 --batch 2 --seed 1 "
                      "--out '",
                      run, "'"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("20 pictures in 1 bucket: 128x128 (20)"), out.text.npos) << out.text;
  const std::string lora = str("--lora '", run, "/model-00000024.safetensors'");
  EXPECT_GT(count(picture("after", cat + lora)).blue, 3 * much);
  const auto file = io::TensorFile::open(run + "/model-00000024.safetensors");
  EXPECT_FALSE(file.metadata().contains("ss_base_model_version")) << "it fits no published one";
  const std::string report = testing::file_bytes(run + "/report.html");
  EXPECT_NE(report.find("<dt>trained</dt><dd>344,064, as adapter lora</dd>"), report.npos);
}

// A LoRA says that it is for the model that it was trained on, and is no network of that kind.
TEST_F(CliBox, info_of_a_lora_for_it__says_what_it_fits) {
  const std::string file = folder_ / "lora.safetensors",
                    layer = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k";
  io::write_safetensors(file, std::vector<io::NamedTensor>{
                                  {layer + ".lora_down.weight", Tensor(DType::f32, {4, 128})},
                                  {layer + ".lora_up.weight", Tensor(DType::f32, {128, 4})}});
  const auto info = [&](const std::string& flags) {
    return nlohmann::json::parse(run_program(str("info --json ", flags, file)).text);
  };
  EXPECT_EQ(info("")["adapter"]["fits"], "the model that comes with ebb");
  const auto taken = info("--model box ");
  EXPECT_FALSE(taken.contains("use")) << taken;
  ASSERT_TRUE(taken.contains("fault")) << taken;
  EXPECT_NE(taken["fault"].get<std::string>().find(layer), std::string::npos) << taken;
  const Output whole = run_program(str("info --json --model box ", model_in_the_box()));
  EXPECT_FALSE(nlohmann::json::parse(whole.text).contains("fault")) << whole.text;
}

// Of squares of 128 pixels, which the file says.
TEST_F(CliBox, buckets__are_around_the_size_that_the_model_makes) {
  const std::string run = folder_ / "run", flags = " --adapter lora --steps 1 --batch 2 --seed 1";
  const Output out = run_program(
      str("train --device cpu --dtype f32 --model '", model_in_the_box(), "' --data '",
          testing::source_folder() + "/tests/data/blueprint", "' --out '", run, "'", flags));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto config = nlohmann::json::parse(testing::file_bytes(run + "/config.json"))["network"];
  EXPECT_EQ(config["resolution"], 128);
  EXPECT_EQ(config["bucket_min"], 64);
  EXPECT_EQ(config["bucket_max"], 256);
}

}  // namespace
}  // namespace ebb
