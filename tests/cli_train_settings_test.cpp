// `ebb train`: flags that say nothing where they stand, and settings with which a run goes on.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_settings : public Program {
 protected:
  std::string run() const { return folder_ / "run"; }
  // Two images of each of so many classes.
  std::string data(int classes) const {
    const std::string folder = images(8, "/class0");
    for (int i = 1; i < classes; ++i) images(8, str("/class", i));
    return folder;
  }
  std::string train(const std::string& flags) const {
    return str("train --device cpu --batch 2 --data ", data(2), " --out ", run(), " --steps 1 ",
               flags);
  }
  std::string resume(const std::string& flags) const {
    return str("train --device cpu --resume --out ", run(), " ", flags);
  }
};

TEST_F(cli_train_settings, without_an_effect__are_refused) {
  struct Row {
    const char *flags, *error;
  };
  constexpr Row rows[] = {
      {"--ema 0.9 --ema-halflife 100",
       "train: --ema-halflife has no effect with --ema 0.9, a decay per step"},
      {"--ema 0.9 --ema-rampup 0.5",
       "train: --ema-rampup has no effect without --ema-halflife (--ema 0.9)"},
      {"--ema-halflife 0 --ema-rampup 0.5",
       "train: --ema-rampup has no effect without --ema-halflife"},
      {"--validation off --validation-every 3",
       "train: --validation-every has no effect without --validation"},
  };
  for (const Row& r : rows) EXPECT_EQ(error_line(train(r.flags)), r.error);
  EXPECT_TRUE(error_line(train("--classes none --label-dropout 0.5"))
                  .starts_with("train: --label-dropout has no effect on images without classes  "));
  const std::string config = folder_ / "settings.json";
  put_file(config, R"({"ema": 0.9, "ema_halflife": 100})");
  EXPECT_EQ(error_line(train("--config " + config)), rows[0].error);
  EXPECT_FALSE(std::filesystem::exists(run()));
  // what says nothing new is no mistake
  const Output good = run_program(train("--ema 0.9 --ema-halflife 0 --ema-rampup 0"));
  EXPECT_EQ(good.code, 0) << good.text;
}

TEST_F(cli_train_settings, of_a_run_that_goes_on__are_told_where_they_are_others) {
  ASSERT_EQ(run_program(train("--seed 3")).code, 0);
  Output out = run_program(resume("--steps 2 --batch 4 --seed 4 --lr 0.1"));
  ASSERT_EQ(out.code, 0) << out.text;
  const size_t at = out.text.find("resume: goes on with ");
  ASSERT_NE(at, out.text.npos) << out.text;
  const std::string line = out.text.substr(at, out.text.find('\n', at) - at);
  for (const char* change :
       {"steps 2 (was 1)", "batch 4 (was 2)", "seed 4 (was 3)", "lr 0.1 (was 0.001)"})
    EXPECT_NE(line.find(change), line.npos) << line;
  EXPECT_EQ(line.find("resume true"), line.npos) << line;
  EXPECT_EQ(out.text.find("resume: the data has"), out.text.npos) << out.text;
  // they are the run's from then on
  std::filesystem::copy_file(data(2) + "/class0/a.png", data(2) + "/class0/c.png");
  out = run_program(resume("--steps 2"));
  EXPECT_EQ(out.text.find("goes on with"), out.text.npos) << out.text;
  EXPECT_NE(out.text.find("resume: the data has 5 images, and had 4 when the run was last started"),
            out.text.npos)
      << out.text;
}

TEST_F(cli_train_settings, of_a_checkpoint__lead_to_one) {
  EXPECT_EQ(error_line(train("--adapter lora")),
            "train: --adapter is of training on a checkpoint: give one, --model FILE");
  EXPECT_EQ(error_line(train("--no-buckets")),
            "train: --no-buckets is of training on a checkpoint: give one, --model FILE");
  EXPECT_EQ(error_line(train("--model sd15")),
            "train: --model must name a network of images and classes alone, or a checkpoint "
            "file, which `ebb create` makes with drawn weights (got sd15, which reads more)");
  EXPECT_FALSE(std::filesystem::exists(run()));
}

class cli_train_checkpoint_help : public TrainProgram {};

TEST_F(cli_train_checkpoint_help, flags__are_those_of_a_checkpoint) {
  const std::string help = run_program(str("train --model ", whole(), " --help-all")).text;
  EXPECT_EQ(help.find("--model TEXT=tiny"), help.npos) << help;
  EXPECT_NE(help.find("ebb train --model sd15.safetensors --data"), help.npos) << help;
  EXPECT_NE(help.find("--no-upscale,--upscale{false}=off"), help.npos) << help;
}

}  // namespace
}  // namespace ebb::testing
