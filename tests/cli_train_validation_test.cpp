// `ebb train --model CHECKPOINT --validation`: the loss on pictures that are not trained on.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/toy_run.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_validation : public TrainProgram {
 protected:
  static constexpr const char* lora = "--adapter lora --rank 4 --alpha 4 --lr 0.01 --batch 2 ";
  static constexpr const char* every = "--validation-every 2 ";
  // By step.
  std::map<int64_t, double> losses(const std::string& out) const {
    std::map<int64_t, double> all;
    for (const auto& line : metrics(folder_ / out))
      if (line.contains("validation/loss")) all[line["step"]] = line["validation/loss"];
    return all;
  }
  // A folder with one of the pictures of data() and its caption.
  std::string part(const std::string& name, std::initializer_list<int> pictures) const {
    const std::string from = data(), to = folder_ / name;
    std::filesystem::create_directories(to);
    for (const int i : pictures)
      for (const char* end : {".png", ".txt"})
        std::filesystem::copy_file(str(from, "/", i, end), str(to, "/", i, end),
                                   std::filesystem::copy_options::overwrite_existing);
    return to;
  }
};

TEST_F(cli_train_validation, pictures_that_are_held_out__are_measured_and_not_trained_on) {
  // spread() takes the first of three
  const Output held = run_program(train("held", str(lora, every, "--steps 4 --validation 1")));
  ASSERT_EQ(held.code, 0) << held.text;
  EXPECT_NE(held.text.find("validation: 1 of 3 pictures are held out"), std::string::npos)
      << held.text;
  EXPECT_NE(held.text.find("  validation "), std::string::npos) << held.text;
  // the same pictures in folders of their own: the same training, and the same measurements
  const Output apart =
      run_program(train_from(whole(), part("two", {1, 2}), "apart",
                             str(lora, every, "--steps 4 --validation ", part("one", {0}))));
  ASSERT_EQ(apart.code, 0) << apart.text;
  const Output alone =
      run_program(train_from(whole(), part("two", {1, 2}), "alone", str(lora, "--steps 4")));
  ASSERT_EQ(alone.code, 0) << alone.text;
  EXPECT_EQ(losses("held").size(), 3U);  // steps 1, 2 and 4
  EXPECT_EQ(losses("held"), losses("apart"));
  EXPECT_TRUE(losses("alone").empty());
  for (const char* run : {"held", "apart"}) expect_same_tensors(model("alone", 4), model(run, 4));
  EXPECT_EQ(io::TensorFile::open(model("held", 4)).metadata().at("ss_num_train_images"), "2");
}

TEST_F(cli_train_validation, run_that_is_stopped_and_goes_on__measures_the_same_bits) {
  // captions that are shuffled and dropped, and pictures that are mirrored, while it trains only
  const std::string flags =
      str(lora, every, "--validation 2 --flip --shuffle-tags --caption-dropout 0.5 ");
  ASSERT_EQ(run_program(train("once", flags + "--steps 6")).code, 0);
  ASSERT_EQ(run_program(train("twice", flags + "--steps 3")).code, 0);
  const Output on = run_program(str("train --resume --steps 6 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  const auto once = losses("once"), twice = losses("twice");
  for (const int64_t step : {2, 4, 6}) EXPECT_EQ(once.at(step), twice.at(step)) << step;
  expect_same_tensors(model("once", 6), model("twice", 6));
  const std::string resume = str("train --resume --steps 7 --out ", folder_ / "twice", " ");
  EXPECT_NE(error_line(resume + "--validation off").find("the run's validation is 2 and stays"),
            std::string::npos);
}

TEST_F(cli_train_validation, of_decomposed_adapters_on_weights_in_8_bits__is_measured) {
  const Output run =
      run_program(train("run",
                        "--adapter dora --frozen-weights q8 --rank 4 --lr 0.01 --batch 2 --steps 4 "
                        "--validation 1 --validation-every 2"));
  ASSERT_EQ(run.code, 0) << run.text;
  const auto measured = losses("run");
  ASSERT_EQ(measured.size(), 3U) << run.text;
  EXPECT_NE(measured.at(1), measured.at(4));
  const std::string keeps = "frozen weights in 8 bits";  // said once
  EXPECT_NE(run.text.find(keeps), std::string::npos);
  EXPECT_EQ(run.text.find(keeps), run.text.rfind(keeps)) << run.text;
}

// Weights that stay are measured to the same bits each time, whatever batches were trained on.
TEST_F(cli_train_validation, of_whole_networks_and_autoencoders__changes_with_the_weights_alone) {
  for (const char* what : {"unet --caption-dropout 0.5", "autoencoder"})
    for (const char* rate : {"1e-30", "1e-3"}) {
      const std::string out = str(what[0], rate);
      const Output run = run_program(
          train(out, str("--train ", what, " --lr ", rate,
                         " --flip --steps 4 --batch 2 --validation 1 --validation-every 2")));
      ASSERT_EQ(run.code, 0) << run.text;
      const auto measured = losses(out);
      ASSERT_EQ(measured.size(), 3U);
      EXPECT_EQ(measured.at(1) == measured.at(2), rate == std::string("1e-30")) << what << rate;
      EXPECT_EQ(measured.at(2) == measured.at(4), rate == std::string("1e-30")) << what << rate;
    }
}

TEST_F(cli_train_validation, mistakes__are_one_error_and_leave_nothing) {
  const auto line = [&](const std::string& flags) {
    return error_line(train("run", str(lora, "--steps 1 --validation ", flags)));
  };
  EXPECT_NE(line("3").find("validation: must leave images to train on (3 of 3)"),
            std::string::npos);
  EXPECT_NE(line("120%").find("a share must be from 0% to below 100% (120%)"), std::string::npos);
  EXPECT_NE(line("nowhere").find("validation: no such file or folder  nowhere"), std::string::npos);
  EXPECT_NE(line(part("one", {0})).find("validation: a picture must not be trained on as well"),
            std::string::npos);
  EXPECT_NE(
      line("1 --prior " + data()).find("prior: a picture that is held out must not be trained on"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/metrics.jsonl"));
  // copies of a picture are held out with it
  for (int i : {1, 2})
    std::filesystem::copy_file(str(data(), "/0.png"), str(data(), "/", i, ".png"),
                               std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(line("1").find("all 3 have the bytes of one that is held out"), std::string::npos)
      << line("1");
}

TEST_F(cli_train_validation, folder_that_was_moved__goes_on_if_its_pictures_are_the_same) {
  const std::string before = part("before", {0}), two = part("two", {1, 2});
  ASSERT_EQ(run_program(train_from(whole(), two, "run",
                                   str(lora, every, "--steps 2 --validation ", before)))
                .code,
            0);
  const std::string moved = folder_ / "moved";
  std::filesystem::rename(before, moved);
  const std::string resume = str("train --resume --steps 4 --out ", folder_ / "run", " ");
  EXPECT_NE(error_line(resume).find(before), std::string::npos);
  const std::string other = part("other", {0});
  put_file(other + "/0.txt", "a hare");
  EXPECT_NE(error_line(str(resume, "--validation ", other))
                .find("resume: validation (pictures or captions) is not the one that the run began "
                      "with  " +
                      other),
            std::string::npos);
  const Output on = run_program(str(resume, "--validation ", moved));
  ASSERT_EQ(on.code, 0) << on.text;
  EXPECT_EQ(losses("run").size(), 4U);  // steps 1, 2, 3 and 4
  // from then on that is its name
  ASSERT_EQ(run_program(str("train --resume --steps 5 --out ", folder_ / "run")).code, 0);
}

TEST_F(cli_train_validation, what_has_no_effect__is_told) {
  EXPECT_NE(error_line(train("run", str(lora, "--steps 1 --validation-every 2")))
                .find("train: --validation-every has no effect without --validation"),
            std::string::npos);
  const Output run = run_program(train("few", str(lora, "--steps 1 --validation auto")));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_NE(run.text.find("validation: none, as auto holds out images of 100 and more, and there "
                          "are 3; --validation 10% holds out a tenth"),
            std::string::npos)
      << run.text;
  EXPECT_TRUE(losses("few").empty());
}

}  // namespace
}  // namespace ebb::testing
