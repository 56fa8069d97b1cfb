// ebb info: what a file or folder is, and which flag takes it.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::run_program;

class CliInfo : public testing::GenerateProgram {
 protected:
  static std::string info(const std::string& file) { return run_program("info " + file).text; }
  static void expect_in(const std::string& file, const std::vector<std::string>& lines) {
    const std::string text = info(file);
    for (const std::string& line : lines)
      EXPECT_NE(("\n" + text).find("\n" + line), text.npos) << line << "\n" << text;
  }
};

TEST_F(CliInfo, networks__name_the_flag_that_takes_them) {
  const auto alone = [](Part p) { return Part{p.model, p.fields, ""}; };
  expect_in(whole(), {"use         ebb generate takes it as --model\n"});
  expect_in(checkpoint({alone(unet())}, "unet"),
            {"missing     a text encoder of 64 channels (--text-encoder FILE brings it), "
             "autoencoder (--vae FILE brings it)\n"});
  expect_in(checkpoint({alone(autoencoder())}, "vae"),
            {"use         ebb generate takes it as --vae beside a checkpoint (--model)\n"});
  expect_in(checkpoint({{"tiny", "{}", ""}}, "tiny"),
            {"use         ebb sample and ebb eval take it\n"});
}

TEST_F(CliInfo, what_runs_write__is_called_so) {
  ASSERT_EQ(run_program(to(png())).code, 0);
  expect_in(png(), {"picture     with the settings of ebb\n",
                    "use         ebb generate --like " + png() + " makes it again\n"});
  io::write_png(png("plain"), Tensor(DType::u8, {8, 8, 3}));
  expect_in(png("plain"), {"picture     without settings\n"});
  const std::string latents = folder_ / "latents.safetensors";
  ASSERT_EQ(run_program(to(latents)).code, 0);
  expect_in(latents, {"numbers     latents of 1 picture by ebb "});
  EXPECT_EQ(info(latents).find("not recognised"), std::string::npos);
}

TEST_F(CliInfo, what_holds_nothing__is_an_error_in_plain_words) {
  const std::string empty = folder_ / "empty", none = folder_ / "none.safetensors";
  std::filesystem::create_directory(empty);
  testing::put_file(none, "");
  EXPECT_EQ(error_line("info " + none), "info: the file is empty (0 bytes)  " + none);
  EXPECT_EQ(error_line("info " + empty),
            "info: the folder has no checkpoint: neither diffusers' model_index.json or weights, "
            "nor model-<step>.safetensors of ebb train  " +
                empty);
  testing::put_file(folder_ / "x.npy", "junk");
  EXPECT_EQ(
      error_line(str("info ", folder_ / "x.npy")).find("info: an array of NumPy has no model"), 0u);
  EXPECT_EQ(error_line("info " + none + "x"),
            "info: there is no such file or folder  " + none + "x");
}

}  // namespace
}  // namespace ebb
