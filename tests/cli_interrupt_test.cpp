// Ctrl-C: how soon commands end, and what they tell.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "support/generate_program.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::Output;
using testing::run_command;

class CliInterrupt : public testing::GenerateProgram {
 protected:
  // What the words print on standard output; a signal comes after so many seconds.
  static Output interrupted(const std::string& words, int seconds) {
    return run_command(str("(exec timeout --preserve-status -s INT ", seconds, " '",
                           testing::program_path(), "' ", words, " 2>/dev/null)"));
  }
  // The same, once the file is there.
  static Output interrupted(const std::string& words, const std::string& file) {
    return run_command(str("{ '", testing::program_path(), "' ", words,
                           " 2>/dev/null & run=$!; while kill -0 $run && ! test -e '", file,
                           "'; do sleep .05; done; kill -TERM $run; wait $run; }"));
  }
  json files() const {
    json out = json::array();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      if (entry.path().extension() != ".safetensors") out.push_back(entry.path().string());
    return out;
  }
};

// Attention of 147456 tokens in f32 takes half a minute on two cores.
TEST_F(CliInterrupt, kernel_that_runs__is_not_waited_for) {
  const std::string model = whole();
  const auto start = std::chrono::steady_clock::now();
  const Output out =
      interrupted(str("generate --device cpu --json --model ", model,
                      " --prompt fox --steps 2 --guidance 1 --dtype f32 --size 3072 --out ", png()),
                  6);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(out.code, 130);
  EXPECT_LT(seconds.count(), 8);
  const json told = json::parse(out.text);
  EXPECT_EQ(told["interrupted"], true);
  EXPECT_EQ(told["signal"], 2);
  EXPECT_EQ(told["files"], json::array());
  EXPECT_EQ(files(), json::array());
}

TEST_F(CliInterrupt, json__lists_the_pictures_that_are_done) {
  const std::string out = folder_ / "out", model = whole();
  const Output o =
      interrupted(str("generate --device cpu --json --seed 5 --model ", model,
                      " --prompt fox --steps 3 --size 64 --n 3000 --batch 1 --out ", out),
                  out + "/00001.png");
  EXPECT_EQ(o.code, 143);
  const json told = json::parse(o.text);
  EXPECT_EQ(told["interrupted"], true);
  EXPECT_EQ(told["signal"], 15);
  EXPECT_EQ(told["n"], 3000);
  EXPECT_EQ(told["out"], out);
  ASSERT_GE(told["files"].size(), 2u) << told;
  EXPECT_EQ(told["files"][1]["file"], out + "/00001.png");
  EXPECT_EQ(told["files"][1]["images"][0]["image"], 1);
  EXPECT_EQ(told["files"].size() + 1, files().size()) << "and the folder: " << files();
}

TEST_F(CliInterrupt, upscaling__is_told_as_json) {
  const std::string network =
      checkpoint({{"esrgan_compact", "{width=64 layers=16 scale=2}", ""}}, "upscaler");
  const std::string large = folder_ / "large.png";
  io::write_png(large, Tensor(DType::u8, {1500, 1500, 3}));
  const Output out = interrupted(str("upscale ", large, " --device cpu --json --tile 1500 --model ",
                                     network, " --out ", png()),
                                 3);
  EXPECT_EQ(out.code, 130);
  EXPECT_EQ(json::parse(out.text), (json{{"interrupted", true}, {"signal", 2}, {"out", png()}}));
  EXPECT_EQ(files(), json::array({large}));
}

}  // namespace
}  // namespace ebb
