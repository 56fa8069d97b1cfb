#include "pipeline/component_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace ebb {
namespace {

// The value of a field of a preset beside such a config.json, and the error where there is one.
std::string with(const std::string& preset, const std::string& json, const char* field) {
  const auto folder = std::filesystem::temp_directory_path() / "ebb_component_config";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << json;
  const NamedModel m = find_component(preset);
  ModelConfig config = m.config;
  std::string out;
  try {
    take_config(*m.model, config, (folder / "model.safetensors").string());
    const std::vector<Field> fields = config.fields();
    out = field_text(find_field(fields, field, "config"));
  } catch (const Error& e) {
    out = e.what();
  }
  std::filesystem::remove_all(folder);
  return out;
}

}  // namespace

// What diffusers calls attention_head_dim is the number of heads.
TEST(component_config, heads_of_unets__are_numbers_of_heads_by_their_config) {
  const std::string four = R"("block_out_channels": [320, 640, 1280, 1280])";
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": 8})", "num_heads"), "8");
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": 10})", "num_heads"), "10");
  EXPECT_EQ(
      with("sd2", "{" + four + R"(, "attention_head_dim": [5, 10, 20, 20]})", "num_head_channels"),
      "64");
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": [10, 20, 40, 40]})",
                 "num_head_channels"),
            "32");
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": 8, "num_attention_heads": 16})",
                 "num_heads"),
            "16");
  EXPECT_EQ(with("sd15", "{}", "num_heads"), "8");
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": 7})", "num_heads")
                .rfind("config: 7 heads must divide 320 channels", 0),
            0u);
  EXPECT_EQ(with("sd15", "{" + four + R"(, "attention_head_dim": [8, 8]})", "num_heads")
                .rfind("config: must have a number of heads for each of 4 levels", 0),
            0u);
}

// Of latents, as diffusers' checkpoints say it: 64, 96 and 128; a list; or what no picture has.
TEST(component_config, side_of_unets__is_their_sample_size_if_pictures_can_be_so_large) {
  const auto side = [](const std::string& preset, const std::string& said) {
    return with(preset, R"({"sample_size": )" + said + "}", "image_size");
  };
  EXPECT_EQ(side("box", "16"), "16");
  EXPECT_EQ(side("sd15", "64"), "64");
  EXPECT_EQ(side("sd2", "96"), "96");
  EXPECT_EQ(side("sdxl", "64"), "64");  // SDXL Turbo
  EXPECT_EQ(side("sd15", "[96, 96]"), "96");
  EXPECT_EQ(side("sd15", "8"), "8");
  EXPECT_EQ(side("sd15", "256"), "256");
  for (const char* said : {"null", "[]", "[96]", "[64, 96]", "96.5", "\"96\"", "512", "7", "0",
                           "-96", "9223372036854775807", "18446744073709551615"})
    EXPECT_EQ(side("sd15", said), "64") << said;
  EXPECT_EQ(with("sdxl", "{}", "image_size"), "128");
}

TEST(component_config, text_encoders__have_the_heads_and_the_activation_of_their_config) {
  const std::string text = R"({"num_attention_heads": 6, "hidden_act": "gelu"})";
  EXPECT_EQ(with("clip_text", text, "heads"), "6");
  EXPECT_EQ(with("clip_text", text, "activation"), "gelu");
  EXPECT_EQ(with("clip_text", R"({"hidden_act": "relu"})", "activation")
                .rfind("config: hidden_act must be quick_gelu or gelu ('relu')", 0),
            0u);
  EXPECT_EQ(with("clip_text", "[", "heads").rfind("config: must be a JSON object", 0), 0u);
}

}  // namespace ebb
