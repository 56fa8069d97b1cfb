// Settings from pictures and files: `ebb generate --like`, `--config`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/image.h"
#include "io/picture_file.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

class CliLike : public testing::GenerateProgram {
 protected:
  // The pixels of what a command wrote.
  std::vector<uint8_t> made(const std::string& command, const std::string& file) const {
    const Output out = run_program(command);
    EXPECT_EQ(out.code, 0) << out.text;
    return pixels(file);
  }
  static std::vector<uint8_t> pixels(const std::string& file) {
    const Tensor t = io::read_image(file);
    return {t.span<uint8_t>().begin(), t.span<uint8_t>().end()};
  }
  std::string like(const std::string& picture, const std::string& flags = "") const {
    return str("generate --device cpu --like ", picture, " --out ", png("again"), " ", flags);
  }
};

TEST_F(CliLike, picture__is_made_again_bit_for_bit) {
  const std::string model = whole();
  const auto first = made(generate(model,
                                   "--prompt '(red:1.2) fox' --negative x --seed 9 "
                                   "--sampler euler_a --guidance 3.5 --clip-skip 2"),
                          png());
  EXPECT_EQ(made(like(png()), png("again")), first);
  EXPECT_NE(made(like(png(), "--seed 10"), png("again")), first);
  EXPECT_NE(made(like(png(), "--prompt wolf"), png("again")), first);
  EXPECT_EQ(io::read_picture_text(png("again")).at("parameters").substr(0, 4), "wolf");
}

// Levels of their own, whose schedule's name alone does not say them.
TEST_F(CliLike, picture_by_a_sampler_of_timesteps__is_made_again_bit_for_bit) {
  const std::string model = whole();
  for (const char* sampler : {"DDIM", "DDIM CFG++", "PLMS", "UniPC"})
    for (const char* dialect : {"a1111", "Comfy"}) {
      const std::string flags = str("--prompt fox --size 64x48 --seed 9 --steps 6 --sampler '",
                                    sampler, "' --dialect ", dialect);
      const auto first =
          made(str("generate --device cpu --model ", model, " --out ", png(), " ", flags), png());
      EXPECT_EQ(made(like(png()), png("again")), first) << flags;
    }
}

// Which a folder's scheduler may have said.
TEST_F(CliLike, options_of_the_picture__are_not_those_of_another_sampler) {
  const std::string folder = folder_ / "diffusers",
                    config = folder + "/scheduler/scheduler_config.json";
  ASSERT_EQ(run_program(str("convert ", whole(), " ", folder)).code, 0);
  std::ifstream in(config);
  auto scheduler = nlohmann::json::parse(in);
  scheduler["_class_name"] = "UniPCMultistepScheduler", scheduler["solver_order"] = 2;
  std::ofstream(config) << scheduler;
  const auto first = made(generate(folder, "--prompt fox --seed 9 --dialect diffusers"), png());
  EXPECT_NE(nlohmann::json::parse(io::read_picture_text(png()).at("ebb")).at("options"), "");
  EXPECT_EQ(made(like(png()), png("again")), first);
  for (const char* other : {"--sampler euler", "--schedule karras", "--sampler auto"})
    made(like(png(), other), png("again"));
  EXPECT_NE(error_line(like(png(), "--sampler euler --options order=2")).find("order"),
            std::string::npos);
}

// In the batch that it was in, since its bits may depend on that.
TEST_F(CliLike, one_of_a_batch__is_made_again_alone) {
  const std::string folder = folder_ / "many";
  const Output out = run_program(str("generate --device cpu --model ", whole(),
                                     " --prompt fox --steps 2 --size 64 --n 5 --batch 2 "
                                     "--format webp --quality 100 --out ",
                                     folder, "/"));
  ASSERT_EQ(out.code, 0) << out.text;
  for (const int i : {1, 2, 4})
    EXPECT_EQ(made(like(str(folder, "/0000", i, ".webp")), png("again")),
              pixels(str(folder, "/0000", i, ".webp")))
        << i;
}

// JPEG and WebP with the quality that they had, in their bytes.
TEST_F(CliLike, of_a_file_with_a_quality__makes_the_same_file_again) {
  const std::string model = whole();
  for (const std::string format : {"jpg", "webp"}) {
    const std::string first = folder_ / ("first." + format), again = folder_ / ("again." + format),
                      better = folder_ / ("better." + format);
    const Output out =
        run_program(str("generate --device cpu --model ", model,
                        " --prompt fox --steps 2 --size 64 --quality 40 --out ", first));
    ASSERT_EQ(out.code, 0) << out.text;
    const std::string like = str("generate --device cpu --like ", first, " --out ");
    ASSERT_EQ(run_program(like + again).code, 0);
    EXPECT_EQ(testing::file_bytes(again), testing::file_bytes(first)) << format;
    ASSERT_EQ(run_program(like + better + " --quality 90").code, 0);
    EXPECT_GT(testing::file_bytes(better).size(), testing::file_bytes(first).size());
    const Output kept = run_program(like + png());  // which has no quality
    EXPECT_EQ(kept.code, 0) << kept.text;
    EXPECT_FALSE(nlohmann::json::parse(io::read_picture_text(png()).at("ebb")).contains("quality"));
  }
}

TEST_F(CliLike, text_of_the_web_ui__gives_its_settings) {
  const std::string model = whole(), picture = png("theirs");
  io::write_png(picture, Tensor(DType::u8, {8, 8, 3}),
                {{"parameters",
                  "a fox\nNegative prompt: water\nSteps: 3, Sampler: Euler a, Schedule type: "
                  "Karras, CFG scale: 4.5, Seed: 77, Size: 64x48, Model hash: 0123456789, Model: "
                  "other, Clip skip: 2, Face restoration: CodeFormer, Version: v1.10.1"}});
  EXPECT_EQ(
      error_line(like(picture)),
      str("generate: the picture was made with the model other; --model FILE names it  ", picture));
  const Output out = run_program(like(picture, "--model " + model));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("warning: like: not followed: Face restoration: CodeFormer\n"),
            out.text.npos);
  const auto text = io::read_picture_text(png("again"));
  const auto j = nlohmann::json::parse(text.at("ebb"));
  EXPECT_EQ(j.at("prompt"), "a fox");
  EXPECT_EQ(j.at("negative"), "water");
  EXPECT_EQ(j.at("guidance"), 4.5);
  EXPECT_EQ(j.at("clip_skip"), 2);
  EXPECT_EQ(j.at("dialect"), "a1111");
  EXPECT_EQ(text.at("parameters").substr(0, 93),
            "a fox\nNegative prompt: water\nSteps: 3, Sampler: Euler a, Schedule type: Karras, CFG "
            "scale: 4.");
}

TEST_F(CliLike, size_of_the_noise_that_is_none__is_an_error) {
  const std::string picture = png("theirs"), model = whole();
  for (const char* size : {"many", "512xmany"}) {
    io::write_png(picture, Tensor(DType::u8, {8, 8, 3}),
                  {{"parameters", str("fox\nSteps: 2, Sampler: Euler a, Seed: 7, Size: 64x48, Seed "
                                      "resize from: ",
                                      size)}});
    EXPECT_EQ(error_line(like(picture, "--model " + model)).find("like: Seed resize from"), 0u)
        << size;
  }
}

// It says the size of the second pass instead of its scale, where one was given.
TEST_F(CliLike, second_pass_of_the_web_ui__is_that_of_its_scale_or_its_size) {
  const std::string model = whole(), picture = png("theirs");
  const auto theirs = [&](const std::string& resize) {
    io::write_png(picture, Tensor(DType::u8, {8, 8, 3}),
                  {{"parameters",
                    "fox\nSteps: 2, Sampler: Euler a, Seed: 7, Size: 64x48, Denoising "
                    "strength: 0.5, Hires resize: " +
                        resize + ", Hires steps: 1, Hires upscaler: Latent"}});
    return like(picture, "--overwrite --model " + model);
  };
  for (const char* resize : {"96x0", "0x72", "96x72"}) {
    const Output out = run_program(theirs(resize));
    ASSERT_EQ(out.code, 0) << out.text;
    const auto j = nlohmann::json::parse(io::read_picture_text(png("again")).at("ebb"));
    EXPECT_EQ(j.at("hires"), "1.5:latent:1:0.5") << resize;
    EXPECT_EQ(io::read_image(png("again")).shape(), Shape({72, 96, 3})) << resize;
  }
  EXPECT_EQ(error_line(theirs("96x96")),
            "generate: the picture was enlarged from 64x48 to 96x96 and cropped, which ebb does "
            "not do; --hires SCALE enlarges it whole  " +
                picture);
}

// It does not say a blur of 0.
TEST_F(CliLike, mask_of_the_web_ui__is_told_by_any_of_its_settings) {
  const std::string model = whole(), picture = png("theirs"), start = png("start");
  Tensor white(DType::u8, {48, 64, 3});
  std::ranges::fill(white.span<uint8_t>(), uint8_t{255});
  io::write_png(start, white);
  for (const char* setting : {"Inpaint area: Only masked, Masked area padding: 8",
                              "Mask mode: Inpaint not masked", "Masked content: fill"}) {
    io::write_png(picture, Tensor(DType::u8, {8, 8, 3}),
                  {{"parameters", str("fox\nSteps: 2, Sampler: Euler a, Seed: 7, Size: 64x48, "
                                      "Denoising strength: 0.5, ",
                                      setting)}});
    const std::string flags = str("--overwrite --model ", model, " --init ", start);
    EXPECT_EQ(error_line(like(picture, flags)),
              "generate: the picture was made with a mask; --mask FILE names it  " + picture);
  }
  const Output out = run_program(
      like(picture, str("--overwrite --model ", model, " --init ", start, " --mask ", start)));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto j = nlohmann::json::parse(io::read_picture_text(png("again")).at("ebb"));
  EXPECT_EQ(j.at("mask_blur"), 0);
  EXPECT_EQ(j.at("masked_content"), "fill");
}

// Without AVX-512 last bits depend on where tensors lie (docs/numerics.md), which is another place
// in a run of several: a colour value may be the next one.
void expect_near(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                 const std::string& flags) {
  ASSERT_EQ(a.size(), b.size()) << flags;
  size_t other = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::abs(a[i] - b[i]), 1) << flags;
    other += a[i] != b[i];
  }
  EXPECT_LE(other, a.size() / 1000) << flags;
}

// Of a run of two, whose text of the web UI alone says of each what makes it again.
TEST_F(CliLike, variations_of_the_web_ui__are_written_and_read) {
  const std::string model = whole();
  const std::string run = "generate --device cpu --model " + model +
                          " --prompt fox --steps 2 --seed 7 --dialect a1111 "
                          "--sampler 'Euler a' --batch 1 ";
  const auto text_of = [](const std::string& file) {
    return io::read_picture_text(file).at("parameters");
  };
  const auto check = [&](const std::string& flags, const std::string& second) {
    const std::string folder = folder_ / "varied";
    std::filesystem::remove_all(folder);
    const Output out = run_program(run + flags + " --size 64x48 --n 2 --out " + folder + "/");
    ASSERT_EQ(out.code, 0) << out.text;
    for (const int i : {0, 1}) {
      const std::string file = str(folder, "/0000", i, ".png"), text = text_of(file);
      EXPECT_EQ(text.find(second) != text.npos, i == 1 || second.starts_with("Seed resize"))
          << text;
      io::write_png(png("theirs"), Tensor(DType::u8, {8, 8, 3}), {{"parameters", text}});
      expect_near(made(like(png("theirs"), "--model " + model), png("again")), pixels(file), flags);
      expect_near(made(like(file), png("again")), pixels(file), flags);
    }
  };
  check("", "Seed: 8, ");
  check("--variation 5:0.3", "Variation seed: 6, Variation seed strength: 0.3, ");
  check("--ensd 31337 --seed-resize 32x32", "Seed resize from: 32x32, ENSD: 31337, ");
  EXPECT_EQ(
      error_line(run + "--noise ebb --ensd 1 --size 64 --out " + png()),
      "generate: --variation, --seed-resize and --ensd need the noise of --dialect a1111 (got "
      "--noise ebb)");
  EXPECT_EQ(error_line(run + "--variation 5 --size 64 --out " + png()),
            "generate: --variation must be SEED:STRENGTH (got '5')");
}

TEST_F(CliLike, config__is_read_and_flags_win) {
  const std::string model = whole(), config = folder_ / "c.json";
  std::ofstream(config) << R"({"prompt": "fox", "seed": 3, "steps": 1, "size": "64x48"})";
  const std::string command =
      str("generate --device cpu --model ", model, " --out ", png(), " --config ", config);
  const auto from_file = made(command, png());
  EXPECT_EQ(from_file, made(str("generate --device cpu --model ", model, " --out ", png(),
                                " --prompt fox --seed 3 --steps 1 --size 64x48"),
                            png()));
  EXPECT_NE(made(command + " --seed 4", png()), from_file);
}

TEST_F(CliLike, config__says_what_flags_say) {
  const std::string model = whole(), config = folder_ / "c.json";
  const std::string command =
      str("generate --device cpu --model ", model, " --out ", png(), " --config ", config);
  const std::string flags = str("generate --device cpu --model ", model, " --out ", png(),
                                " --prompt fox --steps 1 --size 64");
  std::ofstream(config) << R"({"prompt": "fox", "seed": 3, "steps": 1, "size": 64})";
  EXPECT_EQ(made(command, png()), made(flags + " --seed 3", png()));
  std::ofstream(config) << R"({"prompt": "fox", "seed": -1, "steps": 1, "size": 64})";
  const testing::Output drawn = run_program(command);
  const std::string end = " (drawn for -1)\n";
  ASSERT_EQ(drawn.text.find("seed: "), 0u) << drawn.text;
  ASSERT_NE(drawn.text.find(end), drawn.text.npos) << drawn.text;
  const Tensor picture = io::read_image(png());
  EXPECT_EQ(picture.shape(), (Shape{64, 64, 3}));
  const std::string seed = drawn.text.substr(6, drawn.text.find(end) - 6);
  ASSERT_EQ(run_program(str(flags, " --seed ", seed)).code, 0);
  const Tensor again = io::read_image(png());
  EXPECT_TRUE(std::ranges::equal(picture.span<uint8_t>(), again.span<uint8_t>()));
  for (const char* text : {R"({"lora": [""]})", R"({"lora": ""})"}) {
    std::ofstream(config) << text;
    EXPECT_EQ(error_line(command), str("config ", config, ": 'lora' says nothing (got '')"));
  }
}

TEST_F(CliLike, damaged_settings__are_told) {
  ASSERT_EQ(run_program(to(png())).code, 0);
  const std::string rule = "warning: like: not followed: ebb's own settings, which are damaged";
  EXPECT_EQ(run_program(like(png())).text.find(rule), std::string::npos);
  std::string bytes = testing::file_bytes(png());
  const size_t at = bytes.find(std::string("iTXtebb") + '\0');
  const size_t text = at != bytes.npos ? at : bytes.find(std::string("tEXtebb") + '\0');
  ASSERT_NE(text, bytes.npos);
  bytes[text + 20] ^= 1;
  testing::put_file(png(), bytes);
  const Output told = run_program(like(png(), "--model " + whole()));
  EXPECT_NE(told.text.find(rule), std::string::npos) << told.text;
}

TEST_F(CliLike, mistakes__name_the_file_and_the_rule) {
  const std::string bare = png("bare"), config = folder_ / "c.json";
  io::write_png(bare, Tensor(DType::u8, {8, 8, 3}));
  EXPECT_EQ(error_line(like(bare)),
            str("like: the picture says nothing about how it was made  ", bare));
  io::write_png(bare, Tensor(DType::u8, {8, 8, 3}), {{"ebb", "{"}});
  EXPECT_NE(error_line(like(bare)).find(str("like ", bare, ": not JSON")), std::string::npos);
  std::ofstream(config) << R"({"promt": "fox"})";
  EXPECT_NE(error_line("generate --config " + config).find("'prompt'"), std::string::npos);
  std::ofstream(config) << R"({"steps": "many"})";
  EXPECT_NE(error_line("generate --config " + config).find("steps"), std::string::npos);
  EXPECT_EQ(error_line("generate --model x --quality 0 --out x.jpg"),
            "generate: --quality must be 1 to 100 (got 0)");
  EXPECT_EQ(error_line("generate --model x --format gif --out x/"),
            "generate: unknown --format 'gif' (known: png, jpg, webp)");
}

}  // namespace
}  // namespace ebb
