// `ebb train --adapter dora` and `--decompose`: decomposed adapters of a small checkpoint.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_dora : public TrainProgram {
 protected:
  Tensor picture(const std::string& name, const std::string& from) const {
    const Output out = run_program(
        str("generate --device cpu --model ", from,
            " --prompt fox --steps 2 --size 64 --dtype f32 --seed 3 --out ", png(name)));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(name));
  }
  double first_loss(const std::string& out) const {
    const std::string lines = file_bytes(folder_ / (out + "/metrics.jsonl"));
    return nlohmann::json::parse(lines.substr(0, lines.find('\n')))["loss"];
  }
};

constexpr const char* dora = "--adapter dora --rank 4 --alpha 4 --lr 0.01 ";
constexpr const char* query = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";

double mean_difference(const Tensor& x, const Tensor& y) {
  double sum = 0;
  for (size_t i = 0; i < x.span<uint8_t>().size(); ++i)
    sum += std::abs(int{x.span<uint8_t>()[i]} - int{y.span<uint8_t>()[i]});
  return sum / static_cast<double>(x.numel());
}

// Of linear layers, 1x1 and 3x3 filters and a text encoder; kohya's and PEFT's names.
TEST_F(cli_train_dora, adapter_in_a_picture__is_that_of_merged_weights) {
  const Tensor plain = picture("plain", whole());
  for (const std::string names : {"kohya", "peft"}) {
    const Output run = run_program(
        train(names, str(dora,
                         "--train unet,text_encoder --targets attentions,resnets --steps 3 "
                         "--save-dtype f32 --names ",
                         names)));
    ASSERT_EQ(run.code, 0) << run.text;
    const std::string merged = folder_ / (names + "-merged.safetensors"), file = model(names, 3);
    ASSERT_EQ(run_program(str("convert ", whole(), " ", merged, " --lora ", file)).code, 0);
    const Tensor a = picture(names + "-a", str(whole(), " --lora ", file)),
                 b = picture(names + "-b", merged);
    EXPECT_LT(mean_difference(a, b), 0.01) << names;
    EXPECT_GT(mean_difference(a, plain), 1) << names;
  }
  EXPECT_LT(mean_difference(io::read_image(png("kohya-a")), io::read_image(png("peft-a"))), 0.01);
}

TEST_F(cli_train_dora, adapter_that_is_stopped_and_goes_on__has_the_same_bits) {
  expect_same_when_resumed(str(dora, "--batch 2"), 1, 3);
  const std::string error =
      error_line(str("train --resume --steps 4 --decompose --out ", folder_ / "twice"));
  EXPECT_NE(error.find("the run's decompose is false and stays"), std::string::npos) << error;
}

TEST_F(cli_train_dora, recomputed_activations__give_the_same_file) {
  ASSERT_EQ(run_program(train("plain", str(dora, "--steps 2"))).code, 0);
  const Output out = run_program(train("again", str(dora, "--steps 2 --recompute all")));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("computed twice"), std::string::npos) << out.text;
  expect_same_tensors(model("plain", 2), model("again", 2));
}

TEST_F(cli_train_dora, first_step__is_that_of_the_checkpoint) {
  for (const std::string kind : {"lora", "loha", "lokr"}) {
    const std::string flags = str("--adapter ", kind, " --rank 4 --alpha 4 --steps 1 ");
    ASSERT_EQ(run_program(train(kind, flags)).code, 0);
    ASSERT_EQ(run_program(train(kind + "-d", flags + "--decompose")).code, 0);
    EXPECT_NEAR(first_loss(kind), first_loss(kind + "-d"), 1e-5) << kind;
  }
}

TEST_F(cli_train_dora, files__have_magnitudes_in_kohyas_and_pefts_names) {
  ASSERT_EQ(run_program(train("k", str(dora, "--steps 1 --targets to_q,conv1"))).code, 0);
  const auto kohya = io::TensorFile::open(model("k", 1));
  const io::TensorEntry& scale = kohya.find(str("lora_unet_", query, ".dora_scale"));
  EXPECT_EQ(scale.shape, Shape({scale.shape[0], 1}));
  EXPECT_EQ(kohya.find("lora_unet_down_blocks_0_resnets_0_conv1.dora_scale").shape.rank(), 4);
  EXPECT_EQ(kohya.metadata().at("ss_network_module"), "lycoris.kohya");
  EXPECT_EQ(kohya.metadata().at("ss_network_args"), R"({"algo":"lora","dora_wd":"True"})");
  const Output info = run_program(str("info ", model("k", 1)));
  EXPECT_NE(info.text.find("LoRA with DoRA"), std::string::npos) << info.text;
  const std::string flags = str(dora, "--steps 1 --names peft --targets to_q,conv1");
  ASSERT_EQ(run_program(train("p", flags)).code, 0);
  const auto peft = io::TensorFile::open(model("p", 1));
  EXPECT_EQ(peft.find("unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
                      ".lora_magnitude_vector")
                .shape,
            Shape({scale.shape[0]}));
  const Shape filter = peft.find("unet.down_blocks.0.resnets.0.conv1.lora_magnitude_vector").shape;
  EXPECT_EQ(filter, Shape({1, filter[1], 1, 1}));
  const auto facts = nlohmann::json::parse(peft.metadata().at("lora_adapter_metadata"));
  EXPECT_TRUE(facts.at("unet.use_dora"));
}

TEST_F(cli_train_dora, decomposed_weights_without_an_adapter__are_refused) {
  const std::string error = error_line(train("run", "--steps 1 --decompose"));
  EXPECT_NE(error.find("decompose and names are an adapter's"), std::string::npos) << error;
}

}  // namespace
}  // namespace ebb::testing
