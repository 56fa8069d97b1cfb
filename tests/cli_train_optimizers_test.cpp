// `ebb train --model CHECKPOINT --optimizer`: what its flags do, and what a run tells of them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/toy_run.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_optimizers : public TrainProgram {};

TEST_F(cli_train_optimizers, rate_that_prodigy_finds__is_told_and_kept) {
  const std::string flags =
      "--adapter lora --rank 4 --optimizer prodigy --optimizer-options "
      "d0=1e-5 --log-every 1 ";
  const Output once = run_program(train("once", flags + "--steps 4"));
  ASSERT_EQ(once.code, 0) << once.text;
  EXPECT_NE(once.text.find("  lr 1  d 1e-05  "), std::string::npos) << once.text;
  const auto lines = metrics(folder_ / "once");
  ASSERT_EQ(lines.size(), 4U);
  for (const auto& line : lines) EXPECT_GE(line["d"].get<double>(), 0.99e-5) << line;
  EXPECT_GT(lines.back()["d"].get<double>(), lines.front()["d"].get<double>());
  ASSERT_EQ(run_program(train("twice", flags + "--steps 2")).code, 0);
  const std::string resume = str("train --resume --steps 4 --out ", folder_ / "twice");
  EXPECT_NE(error_line(resume + " --optimizer-options d0=1e-6")
                .find("resume: the run's d0=1e-05 of the optimiser stays (d0=1e-06)"),
            std::string::npos);
  const Output on = run_program(resume);
  ASSERT_EQ(on.code, 0) << on.text;
  EXPECT_EQ(metrics(folder_ / "twice").back()["d"], lines.back()["d"]);
  expect_same_tensors(folder_ / "once/state-00000004.safetensors",
                      folder_ / "twice/state-00000004.safetensors");
}

TEST_F(cli_train_optimizers, flags_that_the_optimiser_does_not_have__are_refused) {
  const auto line = [&](const std::string& flags) {
    return error_line(train("run", "--steps 1 --adapter lora " + flags));
  };
  EXPECT_NE(line("--optimizer adafactor --beta1 0.8").find("beta1: adafactor has none (0.8)"),
            std::string::npos);
  EXPECT_NE(line("--optimizer lion --eps 1e-6").find("eps: lion has none (1e-06)"),
            std::string::npos);
  EXPECT_NE(line("--optimizer adamw --optimizer-options d0=1").find("adamw has none (d0=1)"),
            std::string::npos);
  EXPECT_NE(line("--optimizer prodigy --optimizer-options d1=1").find("did you mean 'd0'"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(cli_train_optimizers, usual_rates__are_those_of_the_optimiser) {
  const auto rate = [&](const std::string& out, const std::string& flags) {
    const Output run = run_program(train(out, "--steps 1 " + flags));
    EXPECT_EQ(run.code, 0) << run.text;
    return metrics(folder_ / out).front()["lr"].get<double>();
  };
  EXPECT_EQ(rate("a", "--adapter lora"), 1e-4);
  EXPECT_EQ(rate("b", ""), 1e-5);
  EXPECT_EQ(rate("c", "--adapter lora --optimizer prodigy"), 1);
  EXPECT_EQ(rate("d", "--adapter lora --optimizer adafactor"), 1e-4);
  EXPECT_EQ(
      rate("e", "--adapter lora --optimizer adafactor --optimizer-options relative_step=true"), 1);
  EXPECT_EQ(rate("f", "--train embedding --embedding fox"), 5e-3);
}

}  // namespace
}  // namespace ebb::testing
