// ebb tokens.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "pipeline/model_in_the_box.h"
#include "support/program.h"
#include "text/clip_vocabulary.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

class CliTokens : public testing::Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
};

TEST_F(CliTokens, text__lists_tokens_and_weights) {
  const Output out = run_program("tokens --prompt '<lora:x:0.5> a (Cat:1.5) # b'");
  EXPECT_EQ(out.code, 0);
  EXPECT_EQ(out.text,
            "warning: prompt: 1 comment removed, from # to the end of the line\n"
            "lora x: strength 0.5, of text 0.5\n"
            "chunk 1: 2 of 75 tokens, then 49407\n"
            "   0  49406  1.000  <start>\n"
            "   1    320  1.000  a \n"
            "   2   2368  1.500  cat \n"
            "   3  49407  1.000  <end>\n");
}

TEST_F(CliTokens, json__has_everything) {
  io::write_safetensors(
      folder_ / "emb.safetensors",
      std::vector<io::NamedTensor>{{"emb_params", Tensor(DType::f32, {2, 1280})}});
  const Output out = run_program(str("tokens --json --steps 4 --encoder clip_g --embedding-dir ",
                                     folder_.path(), " --prompt '[emb:dog:0.5] AND cat :2'"));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto all = nlohmann::json::parse(out.text);
  ASSERT_EQ(all["parts"].size(), 2u);
  EXPECT_EQ(all["parts"][1]["weight"], 2);
  const auto& steps = all["parts"][0]["steps"];
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["end_step"], 2);
  const nlohmann::json span{{"name", "emb"}, {"at", 1}, {"first", 0}, {"count", 2}};
  EXPECT_EQ(steps[0]["chunks"][0]["embeddings"][0], span);
  EXPECT_EQ(steps[1]["chunks"][0]["ids"][1], 1929);
  EXPECT_EQ(steps[1]["chunks"][0]["ids"][76], 0);
}

// The model in the box has a text encoder of 128 channels, so its embeddings are narrow, too.
TEST_F(CliTokens, model__says_whose_embeddings_are_taken) {
  io::write_safetensors(folder_ / "rex.safetensors",
                        std::vector<io::NamedTensor>{{"emb_params", Tensor(DType::f32, {2, 128})}});
  const std::string flags = str("tokens --prompt rex --embedding-dir ", folder_.path());
  EXPECT_NE(run_program(flags).text.find("no vectors of width 768 (128)"), std::string::npos);
  const std::string model = str(" --model ", model_in_the_box());
  const Output out = run_program(flags + model);
  EXPECT_EQ(out.code, 0);
  EXPECT_NE(out.text.find("<rex 1>"), std::string::npos) << out.text;
  EXPECT_EQ(out.text.find("left out"), std::string::npos) << out.text;
  EXPECT_EQ(error_line(str("tokens --prompt a --encoder clip_g", model)),
            str("tokens: --model must have the text encoder clip_g (it has clip_l)  ",
                model_in_the_box()));
}

TEST_F(CliTokens, diffusers__reads_exclamation_marks_as_padding) {
  const auto ids = [](const std::string& syntax) {
    const Output out =
        run_program("tokens --json --encoder clip_g --prompt 'a!!' --syntax " + syntax);
    return nlohmann::json::parse(out.text)["parts"][0]["steps"][0]["chunks"][0]["ids"];
  };
  EXPECT_EQ(ids("diffusers")[2], 0);
  EXPECT_EQ(ids("comfyui")[2], 748);
}

TEST_F(CliTokens, mistakes__are_errors) {
  EXPECT_EQ(error_line("tokens"), "tokens: needs --prompt");
  EXPECT_EQ(error_line("tokens --prompt '(a:1.2.3)'"),
            "prompt: a weight must be a number, found '1.2.3' (character 4)");
  EXPECT_NE(error_line("tokens --prompt a --syntax a111").find("a1111"), std::string::npos);
  EXPECT_NE(error_line("tokens --prompt a --tokenizer /nowhere").find("vocab.json"),
            std::string::npos);
}

}  // namespace
}  // namespace ebb
