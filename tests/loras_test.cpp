// LoRAs of a request: flags, tags in prompts, and what a pipeline that outlives requests makes of
// them.
#include "pipeline/loras.h"

#include <gtest/gtest.h>

#include "adapters/facts.h"
#include "pipeline/text_to_image.h"
#include "support/adapter_file.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::loras_test {
namespace {

using nlohmann::json;

// A run of Stable Diffusion 1 with a LoRA at 0.7 on the U-Net and on the text encoder.
const json& golden() {
  static const json runs = read_golden("adapters")["runs"];
  return runs[0];
}

class RequestsWithLoras : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    write_adapter(folder_ / "styles/fox.safetensors", golden());
  }
  // In the syntax that has tags of LoRAs.
  static TextToImageRequest request() {
    TextToImageRequest q = recorded_request(golden());
    q.syntax = text::PromptSyntax::a1111;
    return q;
  }
  std::vector<float> latents(const TextToImageRequest& q) {
    std::vector<float> out;
    RunEvents events;
    events.picture = [&](const Picture& p) {
      out.assign(p.latents.span<float>().begin(), p.latents.span<float>().end());
    };
    pipeline_.run(pipeline_.resolve(q), events);
    return out;
  }
  struct Made : Folder {
    Made() { std::filesystem::create_directories(*this / "styles"); }
  } folder_;
  TextToImage pipeline_{
      small_checkpoint(golden()), open_context("cpu", {.threads = 2}), {.keeps_loras = true}};
};

}  // namespace

TEST(parse_loras, flags__are_files_with_strengths) {
  const auto all = parse_loras("a.safetensors;dir/b:c.safetensors:0.7; d:0.5:-1 ;e:1:lbw=" +
                               std::string("1,1,1,1,1,1,1,1,1,1,1,0"));
  ASSERT_EQ(all.size(), 4u);
  const auto is = [&](size_t i, const char* file, double strength, double text) {
    EXPECT_EQ(all[i].file, file);
    EXPECT_EQ(all[i].strength, strength);
    EXPECT_EQ(all[i].text_strength, text);
  };
  is(0, "a.safetensors", 1, 1);
  is(1, "dir/b:c.safetensors", 0.7, 0.7);
  is(2, "d", 0.5, -1);
  is(3, "e", 1, 1);
  EXPECT_EQ(all[3].blocks, "1,1,1,1,1,1,1,1,1,1,1,0");
  EXPECT_EQ(error_of([] { parse_loras(":0.5"); }), "lora: --lora: must name a file  ':0.5'");
  EXPECT_EQ(
      error_of([] { parse_loras("a:inf"); }),
      "lora: --lora: the strength behind the file must be a finite number (got 'inf')  a:inf");
  EXPECT_EQ(error_of([] { parse_loras("b;a:nan:1", "--refiner-lora"); }),
            "lora: --refiner-lora: the strength behind the file must be a finite number (got 'nan')"
            "  a:nan:1");
}

TEST_F(RequestsWithLoras, tags__name_files_of_the_folder) {
  const auto file = [&](const char* name) {
    return find_lora({.name = name}, folder_.path()).file;
  };
  EXPECT_EQ(file("fox"), folder_ / "styles/fox.safetensors");
  EXPECT_EQ(file("styles/fox"), folder_ / "styles/fox.safetensors");
  for (const char* name : {"../styles/fox", "/etc/passwd", "fix"})
    EXPECT_EQ(error_of([&] { file(name); }).find(str("lora: no file for <lora:", name, ">")), 0u);
  EXPECT_EQ(error_of([] { find_lora({.name = "a"}, ""); }),
            "lora: <lora:a> needs --lora-dir FOLDER");
}

TEST_F(RequestsWithLoras, folder__may_have_links_in_circles_and_files_of_one_name) {
  namespace fs = std::filesystem;
  fs::create_symlink("loop.safetensors", folder_ / "loop.safetensors");
  fs::create_symlink("nowhere", folder_ / "gone.safetensors");
  const auto file = [&](const char* name) {
    return find_lora({.name = name}, folder_.path()).file;
  };
  EXPECT_EQ(file("fox"), folder_ / "styles/fox.safetensors");
  fs::create_directories(folder_ / "other");
  fs::copy_file(folder_ / "styles/fox.safetensors", folder_ / "other/fox.safetensors");
  EXPECT_EQ(error_of([&] { file("fox"); }),
            "lora: <lora:fox> may be other/fox or styles/fox: name it with its folder  " +
                folder_.path());
  EXPECT_EQ(file("other/fox"), folder_ / "other/fox.safetensors");
}

TEST_F(RequestsWithLoras, prompt_with_a_tag__ends_at_diffusers_latents_and_leaves_nothing_behind) {
  TextToImageRequest q = request();
  const auto plain = latents(q);
  q.lora_dir = folder_.path();
  q.prompt += "<lora:fox:0.7>";
  EXPECT_LT(distance("latents", latents(q), golden()["latents"]), 1e-3);
  TextToImageRequest flag = request();
  flag.loras = parse_loras(folder_ / "styles/fox.safetensors" + ":0.7");
  EXPECT_LT(distance("latents", latents(flag), golden()["latents"]), 1e-3);
  flag.loras[0].text_strength = 0;
  EXPECT_GT(distance("latents", latents(flag), golden()["latents"]), 1e-3);
  EXPECT_EQ(latents(request()), plain);
}

TEST_F(RequestsWithLoras, block_weights__leave_blocks_out) {
  TextToImageRequest q = request();
  q.options.steps = 2;
  const auto plain = latents(q);
  q.lora_dir = folder_.path();
  const std::string prompt = q.prompt;
  q.prompt = prompt + "<lora:fox:0.7:lbw=0,0,0,0,0,0,0,0,0,0,0,0>";
  EXPECT_EQ(latents(q), plain);
  q.prompt = prompt + "<lora:fox:0.7:lbw=0,1,1,1,1,1,1,1,1,1,1,1>";
  EXPECT_NE(latents(q), plain);
}

TEST_F(RequestsWithLoras, facts__say_what_a_file_is) {
  const std::string path = folder_ / "facts.safetensors";
  io::write_safetensors(path, adapter_tensors(golden()["tensors"]),
                        {{"ss_base_model_version", "sd_v1"},
                         {"ss_tag_frequency", R"({"1_fox": {"red fox": 9, "snow": 12}})"}});
  const auto facts = adapters::facts_of(*adapters::AdapterFile::open(path));
  EXPECT_EQ(facts.kinds, "LoRA");
  EXPECT_EQ(facts.ranks, "4");
  EXPECT_EQ(facts.alphas, "2");
  EXPECT_EQ(facts.layers, "24 of text encoder 1, 60 of the U-Net");
  EXPECT_TRUE(facts.fits.empty());  // it is for a smaller network than the published ones
  EXPECT_EQ(facts.made_for, "sd_v1");
  EXPECT_EQ(facts.words, (std::vector<std::string>{"snow", "red fox"}));
}

TEST(adapter_facts, file_for_a_published_network__fits_it) {
  const Folder folder;
  const auto fits = [&](const std::string& stem, int64_t out, int64_t in) {
    io::write_safetensors(folder / "a.safetensors",
                          adapter_tensors({{stem + ".lora_down.weight", {4, in}, 0.1, 0.0},
                                           {stem + ".lora_up.weight", {out, 4}, 0.1, 0.0}}));
    return adapters::facts_of(*adapters::AdapterFile::open(folder / "a.safetensors")).fits;
  };
  const std::string block = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn2_to_k";
  EXPECT_EQ(fits(block, 640, 768), (std::vector<std::string>{"Stable Diffusion 1"}));
  EXPECT_EQ(fits(block, 640, 1024), (std::vector<std::string>{"Stable Diffusion 2"}));
  EXPECT_EQ(fits("lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_k", 640, 2048)[0],
            "Stable Diffusion XL");
  EXPECT_EQ(fits("lora_te2_text_model_encoder_layers_31_mlp_fc1", 5120, 1280)[0],
            "Stable Diffusion XL");
}

}  // namespace ebb::testing::loras_test
