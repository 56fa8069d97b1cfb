// Errors about what flags name: each says which flag it is.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::run_program;

class CliInputFlags : public testing::GenerateProgram {
 protected:
  std::string picture() const {
    io::write_png(png("map"), Tensor(DType::u8, {48, 64, 3}));
    return png("map");
  }
  std::string error(const std::string& flags) const { return error_line(to(png(), flags)); }
};

TEST_F(CliInputFlags, files_that_cannot_be_read__are_told_with_the_flag) {
  const std::string broken = folder_ / "broken.safetensors", map = picture();
  testing::put_file(broken, "junk");
  for (const std::string flag :
       {"--vae", "--text-encoder", "--refiner", "--upscale", "--image-encoder"})
    EXPECT_EQ(
        error(str(flag, ' ', broken)),
        str("generate: ", flag, ": safetensors: file must have at least 8 bytes (4)  ", broken));
  EXPECT_EQ(error("--lora " + broken).find("lora: --lora: safetensors: "), 0u);
  EXPECT_EQ(error("--hires 2:" + broken).find("generate: --hires: safetensors: "), 0u);
  const std::string no_picture = ": image: must be a PNG, JPEG or WebP file (4 bytes)  " + broken;
  EXPECT_EQ(error("--init " + broken), "generate: --init" + no_picture);
  EXPECT_EQ(error("--init " + map + " --mask " + broken), "generate: --mask" + no_picture);
  EXPECT_EQ(error("--control none=" + broken + " --control-model x.safetensors --like " + broken),
            "generate: --like" + no_picture);
}

TEST_F(CliInputFlags, refiner_of_another_kind__is_told_with_the_flag) {
  const std::string lora = folder_ / "style.safetensors";
  const std::vector<io::NamedTensor> change = {
      {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_v.lora_down.weight",
       Tensor(DType::f32, {1, 64})},
      {"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_v.lora_up.weight",
       Tensor(DType::f32, {64, 1})}};
  io::write_safetensors(lora, change, {});
  EXPECT_EQ(error("--refiner " + lora),
            "generate: --refiner: the file is a LoRA, which ebb generate takes as --lora beside a "
            "checkpoint (--model)  " +
                lora);
}

TEST_F(CliInputFlags, control_with_empty_parts__is_refused) {
  const std::string map = picture();
  const auto control = [&](const std::string& text) {
    return error(str("--control-model ", map, " --control ", text));
  };
  const std::string begin = "generate: --control: ";
  EXPECT_EQ(control("=" + map),
            str(begin, "no kind stands before the =: one of none, canny, invert, ",
                "threshold (got '=", map, "')"));
  EXPECT_EQ(control("none="), begin + "no image stands behind the = (got 'none=')");
  EXPECT_EQ(control("none/=" + map),
            str(begin, "no task stands behind the / (got 'none/=", map, "')"));
  EXPECT_EQ(control("/depth=" + map).find(begin + "no kind stands before the /"), 0u);
  EXPECT_EQ(control("none=" + map + ":0.5::1"),
            str(begin, "nothing stands between two colons, where the strength, start or end must ",
                "be a number (got '", map, ":0.5::1')"));
  EXPECT_EQ(
      control("none=" + map + ":"),
      str(begin, "the strength, start or end behind the file must be a number (got '')  ", map));
}

TEST_F(CliInputFlags, seed_of_less_1__is_drawn_and_told) {
  const testing::Output first = run_program(to(png("a"), "--seed -1"));
  ASSERT_EQ(first.code, 0) << first.text;
  const std::string seed = first.text.substr(0, first.text.find(" (drawn for -1)\n"));
  ASSERT_EQ(seed.find("seed: "), 0u) << first.text;
  ASSERT_EQ(run_program(to(png("b"), "--seed=" + seed.substr(6))).code, 0);
  EXPECT_EQ(testing::file_bytes(png("a")), testing::file_bytes(png("b")));
  EXPECT_NE(error("--seed -2").find("expected a whole number from 0 to 2^64 - 1, or -1"),
            std::string::npos);
}

TEST_F(CliInputFlags, what_may_not_be_read__is_told_with_the_flag) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string closed = folder_ / "closed", file = closed + "/x.safetensors";
  testing::put_file(file, "junk");
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  EXPECT_EQ(error("--vae " + file), "generate: --vae cannot be read (Permission denied)  " + file);
  EXPECT_EQ(error("--embedding-dir " + closed),
            "embedding: --embedding-dir cannot be read (Permission denied)  " + closed);
  EXPECT_EQ(error_line(str("convert ", file, " ", folder_ / "out.safetensors")),
            "cannot read (Permission denied)  " + file);
  std::filesystem::permissions(closed, std::filesystem::perms::owner_all);
}

TEST_F(CliInputFlags, read_only_picture__is_not_replaced) {
  ASSERT_EQ(run_program(to(png())).code, 0);
  const std::string before = testing::file_bytes(png());
  std::filesystem::permissions(png(), std::filesystem::perms::owner_read);
  for (const char* flags : {"--seed 2", "--seed 2 --overwrite"})
    EXPECT_EQ(error(flags),
              "generate: --out: is read-only; chmod u+w lets it be replaced  " + png());
  EXPECT_EQ(testing::file_bytes(png()), before);
}

}  // namespace
}  // namespace ebb
