// --gpus of commands that make images, and plans of several ranks: as far as no GPU is needed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/context.h"
#include "support/program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

TEST(cli_gpus, number_that_is_not_there__is_an_error_before_anything_is_read) {
  const int64_t here = count_devices("cuda");
  for (const char* command : {"sample missing", "generate --model missing --prompt a",
                              "eval missing --data missing --n 64 --features missing"}) {
    EXPECT_EQ(error_line(str(command, " --gpus 1000")),
              str("gpus: there are not so many here (", here, " of 1000)"));
    EXPECT_EQ(error_line(str(command, " --gpus 0")), "gpus: must be all, or at least 1 (0)");
    EXPECT_EQ(error_line(str(command, " --gpus all --device cpu")),
              "gpus: --device cpu has none (--gpus all)");
    if (here == 0) {
      EXPECT_EQ(error_line(str(command, " --gpus all")),
                "gpus: there is no GPU here that this program can use (--gpus all)");
    }
  }
}

nlohmann::json plan_of(const std::string& flags) {
  const Output out = run_program("explain --device cpu --json --batch 8 " + flags);
  EXPECT_EQ(out.code, 0) << out.text;
  return nlohmann::json::parse(out.text);
}

TEST(cli_gpus, explain_ranks__says_what_is_sent) {
  const auto whole = plan_of("--ranks 4 --shard none"), alone = plan_of("");
  EXPECT_FALSE(alone.contains("sent_bytes"));
  const double sent = whole["sent_bytes"];
  EXPECT_GT(sent, 0);
  // of gradients: the norm, losses and the factor that clips are a few numbers
  EXPECT_NEAR(
      plan_of("--ranks 4 --shard none --reduce-dtype bf16")["sent_bytes"].get<double>() / sent, 0.5,
      0.01);
  // weights in f32 are gathered: once, or twice
  EXPECT_NEAR(plan_of("--ranks 4 --shard optimizer")["sent_bytes"].get<double>() / sent, 1, 0.01);
  EXPECT_EQ(plan_of("--ranks 4"), plan_of("--ranks 4 --shard optimizer"));
  const auto weights = plan_of("--ranks 4 --shard weights");
  EXPECT_GT(weights["sent_bytes"].get<double>() / sent, 1.3);
  EXPECT_LT(weights["source_bytes"].get<double>(), alone["source_bytes"].get<double>() / 2);
  const Output text = run_program("explain --device cpu --ranks 2 --batch 8");
  EXPECT_NE(text.text.find("\na rank sends "), text.text.npos) << text.text;
  EXPECT_NE(text.text.find(" all_reduce"), text.text.npos);
  EXPECT_NE(run_program("explain --device cpu --ranks 2 --batch 8 --stage launches")
                .text.find("a rank sends "),
            std::string::npos);
}

TEST(cli_gpus, explain_ranks__refuses_what_has_no_effect) {
  EXPECT_EQ(error_line("explain --shard weights"),
            "explain: --shard and --reduce-dtype are of several ranks (--ranks 1)");
  EXPECT_EQ(error_line("explain --ranks 3"),
            "explain: every rank must get as many images (batch 8 on 3)");
  EXPECT_EQ(error_line("explain --ranks 2 --no-train"),
            "explain: ranks are of the training step (--no-train)");
  EXPECT_EQ(error_line("explain --ranks 0"), "explain: ranks must be 1 to 65536 (got 0)");
}

}  // namespace
}  // namespace ebb
