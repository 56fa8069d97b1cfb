// `ebb train --model CHECKPOINT` as several processes under mpirun: as one process trains.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/mpirun.h"
#include "support/toy_run.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_ranks : public TrainProgram {
 protected:
  void SetUp() override {
    TrainProgram::SetUp();
    if (const std::string why = no_mpirun(); !why.empty()) GTEST_SKIP() << why;
  }
  Output run(int ranks, const std::string& words) const {
    const std::string program = str("'", program_path(), "' ", words, " --threads 1");
    return run_command(ranks == 1 ? program : on_ranks(ranks, program));
  }
  // On one process and on two: the same losses, and weights but for the order of sums.
  void expect_same_run(const std::string& flags, int steps) const {
    const std::string words = str(flags, " --save-dtype f32 --steps ", steps);
    const Output one = run(1, train("one", words)), two = run(2, train("two", words));
    ASSERT_EQ(one.code, 0) << one.text;
    ASSERT_EQ(two.code, 0) << two.text;
    EXPECT_NE(two.text.find("on 2 ranks, each with"), std::string::npos) << two.text;
    EXPECT_EQ(two.text.find("pictures in"), two.text.rfind("pictures in")) << "one rank speaks";
    expect_same_losses("one", "two");
    expect_close(model("one", steps), model("two", steps));
    std::filesystem::remove_all(folder_ / "one");
    std::filesystem::remove_all(folder_ / "two");
  }
  void expect_same_losses(const std::string& a, const std::string& b) const {
    const auto x = metrics(folder_ / a), y = metrics(folder_ / b);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      for (const char* name : {"loss", "validation/loss", "disc_loss", "gan_weight"}) {
        ASSERT_EQ(x[i].contains(name), y[i].contains(name));
        if (!x[i].contains(name)) continue;
        // a quotient of small gradients, in which rounding grows
        const double near = std::string_view(name) == "gan_weight" ? 1e-3 : 2e-5;
        EXPECT_NEAR(x[i][name], y[i][name], near * double{y[i][name]}) << name << ' ' << x[i];
      }
  }
  // Adam moves an element by the sign of a gradient that is all rounding: few may differ by steps.
  static void expect_close(const std::string& a, const std::string& b) {
    const auto one = io::TensorFile::open(a), other = io::TensorFile::open(b);
    ASSERT_EQ(one.entries().size(), other.entries().size());
    double square = 0, difference = 0;
    for (const io::TensorEntry& e : one.entries()) {
      const Tensor x = one.load(e), y = other.load(other.find(e.name));
      for (size_t i = 0; i < x.span<float>().size(); ++i) {
        const double v = x.span<float>()[i], d = v - y.span<float>()[i];
        square += v * v, difference += d * d;
      }
    }
    EXPECT_LT(std::sqrt(difference / square), 1e-4);
  }
};

constexpr const char* lora = "--adapter lora --rank 4 --alpha 4 --lr 0.003 ";

TEST_F(cli_train_ranks, adapter__is_trained_as_by_one_whatever_is_split) {
  for (const char* shard : {"none", "optimizer", "weights"})
    expect_same_run(str(lora, "--batch 4 --flip --caption-dropout 0.3 --shard ", shard), 3);
  expect_same_run("--adapter dora --frozen-weights q8 --rank 4 --lr 0.01 --batch 4 --shard weights",
                  3);
}

TEST_F(cli_train_ranks, seed_that_is_drawn__is_one_of_all_ranks_and_told_once) {
  std::string words = train("drawn", str(lora, "--batch 2 --save-dtype f32 --steps 2"));
  words.replace(words.find("--seed 5"), 8, "--seed -1");
  const Output drawn = run(2, words);
  ASSERT_EQ(drawn.code, 0) << drawn.text;
  const std::string told = "seed: ";
  const size_t at = drawn.text.find(told);
  ASSERT_NE(at, std::string::npos) << drawn.text;
  EXPECT_EQ(drawn.text.find(told, at + 1), std::string::npos) << drawn.text;
  std::istringstream in(drawn.text.substr(at + told.size()));
  std::string seed;
  in >> seed;
  words = train("again", str(lora, "--batch 2 --save-dtype f32 --steps 2"));
  words.replace(words.find("--seed 5"), 8, "--seed " + seed);
  ASSERT_EQ(run(2, words).code, 0);
  expect_same_tensors(model("drawn", 2), model("again", 2));
}

TEST_F(cli_train_ranks, networks_and_text_encoders__are_trained_as_by_one) {
  expect_same_run("--train unet,text_encoder --lr 1e-4 --batch 2 --prior " + data(), 2);
  expect_same_run("--train autoencoder --lr 1e-4 --batch 2 --flip", 2);
  expect_same_run("--train autoencoder --lr 1e-4 --batch 2 --disc-weight 0.5 --disc-channels 16",
                  2);
  expect_same_run("--train embedding --embedding fox --lr 1e-3 --batch 2 --shuffle-tags", 2);
  expect_same_run(str("--train controlnet --control-images ", data(), " --lr 1e-4 --batch 2"), 2);
}

TEST_F(cli_train_ranks, micro_batches_validation_and_samples__are_the_same_run) {
  expect_same_run(str(lora,
                      "--batch 4 --accumulation 2 --validation 1 --validation-every 1 "
                      "--sample-every 2 --sample-prompts fox --sample-pictures 1"),
                  3);
}

TEST_F(cli_train_ranks, resumed_on_another_number__goes_on) {
  const std::string words = str(lora, "--batch 4 --save-dtype f32 ");
  ASSERT_EQ(run(1, train("one", words + "--steps 4")).code, 0);
  ASSERT_EQ(run(2, train("run", words + "--steps 1")).code, 0);
  const std::string on = str("train --resume --out ", folder_ / "run", " --steps ");
  ASSERT_EQ(run(1, on + "2").code, 0);
  const Output last = run(4, on + "4");
  ASSERT_EQ(last.code, 0) << last.text;
  EXPECT_NE(last.text.find("resumes at step 2"), std::string::npos) << last.text;
  expect_same_losses("one", "run");
  expect_close(model("one", 4), model("run", 4));
  // and twice on the same number to the same bits
  ASSERT_EQ(run(2, train("whole", words + "--steps 2")).code, 0);
  ASSERT_EQ(run(2, train("parts", words + "--steps 1")).code, 0);
  ASSERT_EQ(run(2, str("train --resume --steps 2 --out ", folder_ / "parts")).code, 0);
  expect_same_tensors(folder_ / "whole/state-00000002.safetensors",
                      folder_ / "parts/state-00000002.safetensors");
}

TEST_F(cli_train_ranks, mistakes__are_one_error) {
  const std::string words = train("run", str(lora, "--steps 1 --batch 3"));
  const Output odd = run(2, words);
  const std::string line =
      "batch: every rank must get as many images of a micro-batch (3 / 1 on 2)";
  EXPECT_NE(odd.code, 0);
  EXPECT_NE(odd.text.find(line), std::string::npos) << odd.text;
  EXPECT_EQ(odd.text.find(line), odd.text.rfind(line)) << odd.text;
  EXPECT_NE(error_line(train("run", str(lora, "--steps 1 --gpus 2"))).find("--device cpu has none"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

}  // namespace
}  // namespace ebb::testing
