// `ebb train --train autoencoder --disc-weight W`: a discriminator beside a small autoencoder.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_discriminator : public TrainProgram {
 protected:
  static constexpr const char* small =
      "--train autoencoder --threads 1 --flip --disc-weight 0.5 --disc-channels 16 --batch ";

  // A number of every step, as metrics.jsonl has it.
  std::vector<double> curve(const std::string& out, const char* name) const {
    std::vector<double> all;
    std::istringstream lines(file_bytes(folder_ / str(out, "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);)
      if (const auto j = nlohmann::json::parse(line); j.contains("lr")) all.push_back(j.at(name));
    return all;
  }
  void run(const std::string& out, const std::string& flags) const {
    const Output o = run_program(train(out, str(small, "2 ", flags)));
    ASSERT_EQ(o.code, 0) << o.text;
  }
};

TEST_F(cli_train_discriminator, run_that_is_stopped_and_goes_on__has_the_same_bits) {
  const std::string flags = "--lr 1e-3 --disc-start 1 --ema-halflife 1 --save-dtype f32 ";
  run("once", flags + "--steps 4");
  run("twice", flags + "--steps 2");
  const Output on =
      run_program(str("train --resume --threads 1 --steps 4 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(model("once", 4), model("twice", 4));
  expect_same_tensors(state("once", 4), state("twice", 4));
  EXPECT_EQ(curve("once", "disc_loss"), curve("twice", "disc_loss"));
  const std::string changed =
      error_line(str("train --resume --steps 5 --disc-weight 1 --out ", folder_ / "twice"));
  EXPECT_NE(changed.find("the run's disc_weight is 0.5 and stays"), std::string::npos) << changed;
}

TEST_F(cli_train_discriminator, files__have_it_where_runs_go_on_and_not_in_models) {
  run("run", "--lr 1e-3 --disc-start 2 --steps 3 --save-dtype f32");
  const auto before = io::TensorFile::open(whole()), after = io::TensorFile::open(model("run", 3));
  EXPECT_EQ(before.entries().size(), after.entries().size());
  const auto kept = io::TensorFile::open(state("run", 3));
  for (const char* name : {"raw.discriminator.0.conv.weight", "m.discriminator.3.norm.bias"})
    EXPECT_TRUE(kept.contains(name)) << name;
  EXPECT_EQ(kept.find("raw.discriminator.3.conv.weight").shape, (Shape{128, 64, 4, 4}));
  const std::vector<double> weight = curve("run", "gan_weight");
  ASSERT_EQ(weight.size(), 3u);
  EXPECT_EQ(weight[0], 0);
  EXPECT_EQ(weight[1], 0);
  EXPECT_GT(weight[2], 0);
  ASSERT_EQ(run_program("report " + folder_ / "run").code, 0);
  EXPECT_NE(file_bytes(folder_ / "run/report.html").find("disc_loss"), std::string::npos);
}

TEST_F(cli_train_discriminator, before_it_starts__the_autoencoder_is_that_of_a_run_without_it) {
  run("with", "--lr 1e-3 --steps 3 --disc-start 3 --save-dtype f32");
  const std::string plain = "--train autoencoder --threads 1 --batch 2 --flip --lr 1e-3 --steps 3 ";
  ASSERT_EQ(run_program(train("without", plain + "--save-dtype f32")).code, 0);
  const std::vector<double> with = curve("with", "loss"), without = curve("without", "loss");
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(with[i], without[i], 1e-6) << i;
}

TEST_F(cli_train_discriminator, of_pictures_that_stay_bad__learns_to_tell_them) {
  run("run", "--lr 1e-9 --disc-lr 1e-3 --steps 24");
  const std::vector<double> loss = curve("run", "disc_loss");
  EXPECT_NEAR(loss.front(), 1, 0.1);  // it knows nothing
  EXPECT_LT(loss.back(), 0.5);
  for (const double v : loss) EXPECT_GE(v, 0);
}

TEST_F(cli_train_discriminator, that_stays_as_it_is__is_deceived) {
  run("run", "--lr 1e-3 --disc-lr 1e-12 --steps 12");
  const std::vector<double> gan = curve("run", "gan_loss");
  EXPECT_LT(gan.back(), gan.front());
}

TEST_F(cli_train_discriminator, bf16_micro_batches_recomputed_and_measured__trains) {
  std::string line = train("run", str(small,
                                      "4 --accumulation 2 --recompute all "
                                      "--validation 1 --lr 1e-4 --steps 2"));
  line.replace(line.find("--dtype f32"), 11, "--dtype bf16");
  const Output out = run_program(line);
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("weights of a discriminator beside it"), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("  disc_loss "), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("  validation "), std::string::npos) << out.text;
}

TEST_F(cli_train_discriminator, mistakes__are_one_error) {
  const auto says = [&](const std::string& flags, const std::string& text) {
    const std::string error = error_line(train("run", "--steps 1 " + flags));
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  says("--disc-weight 0.5", "disc_weight: is of an autoencoder that is trained");
  const std::string coder = "--train autoencoder ";
  says(coder + "--disc-weight -1", "disc_weight: must be finite and not negative (-1)");
  says(coder + "--disc-start 5", "are of a discriminator, and there is none");
  says(coder + "--disc-weight 1 --disc-start -5", "disc_start: must not be negative (-5)");
  says(coder + "--disc-weight 1 --disc-lr -1", "disc_lr: must be finite and not negative (-1)");
  says(coder + "--disc-weight 1 --disc-channels 24",
       "disc_channels: must be a multiple of 16, at most 1024 (24)");
  std::string line = train("run", coder + "--disc-weight 1 --steps 1");
  const std::string sizes = "--resolution 64 --bucket-min 32 --bucket-max 128 --bucket-step 32";
  line.replace(line.find(sizes), sizes.size(),
               "--resolution 16 --bucket-min 16 --bucket-max 16 --bucket-step 8");
  const std::string error = error_line(line);
  EXPECT_NE(error.find("needs buckets with sides of at least 24 (16x16)"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace ebb::testing
