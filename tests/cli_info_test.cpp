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
             "autoencoder (--vae FILE brings it)\n",
             "use         ebb generate takes it as --model with the flags that bring what is "
             "missing\n"});
  expect_in(checkpoint({alone(autoencoder())}, "vae"),
            {"use         ebb generate takes it as --vae beside a checkpoint (--model)\n"});
  expect_in(checkpoint({{"tiny", "{}", ""}}, "tiny"),
            {"use         ebb sample and ebb eval take it\n"});
}

TEST_F(CliInfo, file_that_lacks_a_tensor__has_the_fault_that_generate_tells) {
  const std::string file = folder_ / "lacks.safetensors";
  const auto all = io::TensorFile::open(whole());
  std::vector<io::NamedTensor> some;
  for (const auto& e : all.entries())
    if (e.name != "model.diffusion_model.time_embed.0.bias") some.push_back({e.name, all.load(e)});
  io::write_safetensors(file, some, {});
  const std::string lacks =
      "weights: the file's tensors must be those of the network\n"
      "  missing (1):\n    model.diffusion_model.time_embed.0.bias[256]";
  const std::string error = run_program(generate(file, "--prompt x")).text, text = info(file);
  EXPECT_NE(error.find("ebb: error: " + lacks), error.npos) << error;
  EXPECT_NE(text.find("\nfault       " + lacks), text.npos) << text;
  EXPECT_EQ(text.find("\nuse  "), text.npos) << text;
}

TEST_F(CliInfo, folders_of_diffusers__are_judged_as_generate_takes_them) {
  namespace fs = std::filesystem;
  const auto alone = [&](const Part& p, const std::string& as) {
    fs::create_directories((folder_ / ("sd/" + as)));
    fs::rename(checkpoint({{p.model, p.fields, ""}}, as),
               folder_ / ("sd/" + as + "/model.safetensors"));
  };
  alone(unet(), "unet");
  const std::string folder = folder_ / "sd", bare = folder + "/unet";
  expect_in(bare, {"use         ebb generate takes its file as --model " + bare +
                   "/model.safetensors with the flags that bring what is missing\n"});
  alone(text(), "text_encoder");
  alone(autoencoder(), "vae");
  expect_in(folder, {"use         ebb generate takes it as --model\n"});
  testing::put_file(bare + "/config.json", "{");
  const std::string fault = error_line(generate(folder, "--prompt x"));
  expect_in(folder, {"fault       " + fault});
  EXPECT_EQ(info(folder).find("use  "), std::string::npos);
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
