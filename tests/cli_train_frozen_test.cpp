// `ebb train --frozen-weights q8`: what is not trained is kept in 8 bits.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_frozen : public TrainProgram {
 protected:
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    std::istringstream lines(file_bytes(folder_ / (out + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const auto j = nlohmann::json::parse(line); j.contains("loss")) all.push_back(j["loss"]);
    return all;
  }
  // "a step needs 12 MB"
  static int64_t megabytes(const Output& out) {
    const std::string words = "a step needs ";
    const size_t at = out.text.find(words);
    return at == std::string::npos ? -1 : std::stoll(out.text.substr(at + words.size()));
  }
};

constexpr const char* q8 = " --frozen-weights q8";

TEST_F(cli_train_frozen, weights_in_8_bits__give_about_the_same_losses_in_less_memory) {
  for (const std::string kind : {"lora", "dora", "loha"}) {
    const std::string flags =
        str("--adapter ", kind, " --rank 4 --alpha 4 --lr 0.001 --steps 3 --train ",
            "unet,text_encoder --batch 2");
    const Output plain = run_program(train(kind, flags));
    const Output quantised = run_program(train(kind + "-q8", flags + q8));
    ASSERT_EQ(plain.code, 0) << plain.text;
    ASSERT_EQ(quantised.code, 0) << quantised.text;
    EXPECT_NE(quantised.text.find("frozen weights in 8 bits"), std::string::npos);
    const auto a = losses(kind), b = losses(kind + "-q8");
    ASSERT_EQ(a.size(), b.size());
    ASSERT_GE(a.size(), 1u);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], 0.005 * a[i]) << kind << ' ' << i;
      EXPECT_NE(a[i], b[i]) << kind << ' ' << i;
    }
    EXPECT_LT(megabytes(quantised), megabytes(plain)) << kind;
  }
}

TEST_F(cli_train_frozen, run_that_is_stopped_and_goes_on__has_the_same_bits) {
  expect_same_when_resumed(str("--adapter lora --rank 4 --lr 0.01", q8), 1, 3);
  const std::string error =
      error_line(str("train --resume --steps 4 --frozen-weights dtype --out ", folder_ / "twice"));
  EXPECT_NE(error.find("the run's frozen_weights is q8 and stays"), std::string::npos) << error;
}

TEST_F(cli_train_frozen, recomputed_activations__give_the_same_file) {
  const std::string flags = str("--adapter lora --rank 4 --lr 0.01 --steps 2", q8);
  ASSERT_EQ(run_program(train("plain", flags)).code, 0);
  ASSERT_EQ(run_program(train("again", flags + " --recompute all")).code, 0);
  expect_same_tensors(model("plain", 2), model("again", 2));
}

TEST_F(cli_train_frozen, networks_of_which_nothing_stays__are_refused) {
  const std::string whole_unet = error_line(train("run", str("--steps 1", q8)));
  EXPECT_NE(whole_unet.find("nothing stays as it is"), std::string::npos) << whole_unet;
  const std::string coder = error_line(train("run", str("--steps 1 --train autoencoder", q8)));
  EXPECT_NE(coder.find("is not for autoencoders"), std::string::npos) << coder;
  const std::string unknown = error_line(train("run", "--steps 1 --frozen-weights q4"));
  EXPECT_NE(unknown.find("frozen_weights: unknown value"), std::string::npos) << unknown;
}

}  // namespace
}  // namespace ebb::testing
