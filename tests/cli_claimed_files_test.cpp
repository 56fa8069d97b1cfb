// What commands keep of what is there: names that another run took, complete files, other kinds.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::run_command;
using testing::run_program;

class CliClaimedFiles : public testing::GenerateProgram {
 protected:
  static bool says(const Output& out, const std::string& text) {
    return out.text.find(text) != out.text.npos;
  }
};

TEST_F(CliClaimedFiles, runs_into_one_folder__keep_all_pictures) {
  const std::string many = folder_ / "many", program = str("'", testing::program_path(), "' ");
  std::string both;
  for (int seed = 1; seed <= 3; ++seed)
    both += str(program, to(many + "/", str("--n 4 --batch 1 --seed ", seed)), " & ");
  const Output out = run_command("{ " + both + "wait; }");
  std::set<std::string> different;
  for (const auto& entry : fs::directory_iterator(many)) different.insert(file_bytes(entry.path()));
  EXPECT_EQ(different.size(), 12u) << out.text;
}

TEST_F(CliClaimedFiles, report__names_files_and_seeds) {
  const std::string many = folder_ / "many";
  ASSERT_EQ(run_program(to(many + "/")).code, 0);
  const std::string text = run_program(to(many, "--n 2 --seed 7 --json")).text;
  const auto files = nlohmann::json::parse(text.substr(text.find("{\"seconds"))).at("files");
  ASSERT_EQ(files.size(), 2u) << text;
  EXPECT_EQ(files[1].at("file"), many + "/00002.png");
  EXPECT_EQ(files[1].at("images"), nlohmann::json::parse(R"([{"image":1,"seed":7}])"));
  const Output told = run_program(to(many, "--n 2"));
  EXPECT_TRUE(says(told, str(many, "/00003.png to ", many, "/00004.png\n"))) << told.text;
}

TEST_F(CliClaimedFiles, sizes_that_a_file_cannot_hold__are_said_first) {
  const std::string out = folder_ / "x.webp", many = folder_ / "many";
  const auto error = [&](const std::string& words) { return error_line(to(words)); };
  const std::string larger =
      " --n 10000 --upscale " +
      checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=4}", ""}}, "up");
  const std::string grid =
      "generate: --out: a grid of 10000 pictures of 256x256 is 25802x25802, and ";
  EXPECT_EQ(error(out + larger),
            grid + "WebP holds 16383 pixels a side; a folder as --out holds it  " + out);
  EXPECT_EQ(error(png() + larger), grid +
                                       "ebb reads at most 16384 pixels a side and 134217728 in "
                                       "all; a folder as --out holds it  " +
                                       png());
  const std::string wide = str("generate --device cpu --model ", whole(),
                               " --prompt fox --steps 1 --size 16384x64 --out ");
  EXPECT_EQ(error_line(wide + many + "/ --format webp"),
            "generate: --out: the picture is 16384x64, and WebP holds 16383 pixels a side; "
            "--format png holds it  " +
                many + "/");
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(many));
}

TEST_F(CliClaimedFiles, grid_with_rows_that_are_too_long__has_others_and_is_replaced) {
  std::string data = images(8, "/one"), run = folder_ / "run";
  images(8, "/two");
  ASSERT_EQ(
      run_program(str("train --device cpu --steps 1 --batch 2 --data ", data, " --out ", run)).code,
      0);
  const std::string sample = str("sample ", run, " --device cpu --steps 1 --out ", png(), " --n ");
  for (int i = 0; i < 2; ++i) {  // 1640 a class: 16402 pixels
    const Output out = run_program(sample + "3280");
    EXPECT_EQ(out.code, 0) << out.text;
    EXPECT_EQ(io::read_image(png()).shape(), (Shape{572, 582, 3}));
  }
  EXPECT_EQ(
      error_line(sample + "1639 --columns 1639"),
      "sample: --out: a grid of 1639 pictures of 8x8 is 16392x12, and ebb reads at most 16384 "
      "pixels a side and 134217728 in all; a folder as --out holds it  " +
          png());
}

TEST_F(CliClaimedFiles, interrupted_grid__leaves_that_of_an_earlier_run) {
  ASSERT_EQ(run_program(to(png(), "--n 4")).code, 0);
  const std::string before = file_bytes(png());
  const Output out = run_program(str("--version; { '", testing::program_path(), "' ",
                                     to(png(), "--n 9000 --batch 1 --seed 2"),
                                     " & sleep 3; kill -TERM $!; wait $!; }"));
  EXPECT_EQ(out.code, 143) << out.text;
  EXPECT_EQ(file_bytes(png()), before);
  EXPECT_TRUE(says(out, str(png("x-partial"), "; ", png(), " stays as it was"))) << out.text;
  EXPECT_TRUE(fs::exists(png("x-partial")));
}

TEST_F(CliClaimedFiles, other_outputs__replace_their_own_kind_only) {
  const std::string keeps = "; another name keeps it, --overwrite replaces it  ",
                    svg = folder_ / "plot.svg", plot = "samplers plot --steps 5 --out " + svg;
  testing::put_file(svg, "notes");
  EXPECT_EQ(
      error_line(plot),
      "samplers: --out would replace a file that is no plot of a sampler by ebb" + keeps + svg);
  EXPECT_EQ(file_bytes(svg), "notes");
  EXPECT_EQ(run_program(plot + " --overwrite").code, 0);
  EXPECT_EQ(run_program(plot).code, 0);
  const std::string json = folder_ / "some.json";
  testing::put_file(json, "{}");
  EXPECT_EQ(error_line("eval nowhere --data none --out " + json),
            "eval: --out would replace a file that has no figures of ebb eval" + keeps + json);
  testing::put_file(png("seen"), "notes");
  EXPECT_EQ(error_line(to(png(), "--preview " + png("seen"))),
            "generate: --preview would replace a file that is no picture" + keeps + png("seen"));
}

// Its folder vanishes while the run goes on.
TEST_F(CliClaimedFiles, preview_that_cannot_be_written__does_not_end_the_run) {
  const std::string away = folder_ / "away";
  fs::create_directory(away);
  const Output out =
      run_program(str("--version; { '", testing::program_path(), "' generate --device cpu --model ",
                      whole(), " --prompt fox --steps 300 --size 64 --out ", png(), " --preview ",
                      away, "/x.png & while kill -0 $! 2>/dev/null; do if [ -e ", away,
                      "/x.png ]; then mv ", away, " ", away, "2; break; fi; done; wait $!; }"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_TRUE(fs::exists(png())) << out.text;
  const size_t at = out.text.find("; goes on without previews");
  ASSERT_NE(at, out.text.npos) << out.text;
  EXPECT_EQ(out.text.find("; goes on without previews", at + 1), out.text.npos);
}

TEST_F(CliClaimedFiles, rules__need_no_guidance_beside_them) {
  EXPECT_EQ(run_program(to(png(), "--rules 'cfg:scale=4'")).code, 0);
  EXPECT_NE(error_line(to(png(), "--rules cfg:scale=4 --guidance 3")).find("not both"),
            std::string::npos);
}

TEST_F(CliClaimedFiles, config__takes_all_flags) {
  const std::string config = folder_ / "c.json";
  const auto with = [&](const std::string& text) {
    testing::put_file(config, text);
    return to(folder_ / "x.jpg", "--config " + config);
  };
  const Output out = run_program(
      with(R"({"memory": "5GB", "quality": 80, "device": "cpu", "threads": 1, "json": true,
               "overwrite": true, "prompt-syntax": "comfyui", "sigma_max": 12, "lora": [],
               "preview": ")" +
           png("seen") + "\"}"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_TRUE(says(out, "{\"seconds\"")) << out.text;
  EXPECT_TRUE(fs::exists(png("seen")));
  EXPECT_EQ(
      error_line(with(R"({"config": "x"})")),
      str("config ", config, ": 'config' is a flag of the command line alone: --config FILE"));
  EXPECT_NE(error_line(with(R"({"lora": ["/no/a", "/no/b"]})")).find("/no/a"), std::string::npos);
}

TEST_F(CliClaimedFiles, empty_texts__are_refused) {
  for (const char* flag : {"--init", "--mask", "--vae", "--lora-dir", "--rules", "--refiner",
                           "--upscale", "--preview", "--lora", "--variant"})
    EXPECT_EQ(error_line(to(png(), str(flag, " ''"))),
              str("generate: ", flag, " says nothing (got '')"));
  EXPECT_EQ(run_program(to(png(), "--negative ''")).code, 0);
}

TEST_F(CliClaimedFiles, picture_of_comfyui__is_called_so) {
  io::write_png(png(), Tensor(DType::u8, {8, 8, 3}), {{"prompt", "{}"}, {"workflow", "{}"}});
  EXPECT_EQ(error_line("generate --like " + png()),
            "like: the picture has a graph of ComfyUI without a sampler whose picture is shown; "
            "flags say "
            "the settings  " +
                png());
}

TEST_F(CliClaimedFiles, scale_of_upscale__is_more_than_0) {
  const std::string up = checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=4}", ""}}, "up");
  EXPECT_EQ(
      error_line(to(png(), str("--upscale ", up, ":0"))),
      str("generate: --upscale: the scale must be more than 0 and at most 16 (got '", up, ":0')"));
}

TEST_F(CliClaimedFiles, folders_of_components__are_taken_by_their_flags) {
  const std::string folder = folder_ / "folder";
  ASSERT_EQ(run_program(str("convert ", whole(), " ", folder)).code, 0);
  const std::string bare = str("generate --device cpu --prompt fox --steps 1 --size 64 --out ",
                               png(), " --model ", checkpoint({unet()}, "bare"));
  for (const char* vae : {"", "/vae"})
    for (const char* text : {"", "/text_encoder"}) {
      const Output out =
          run_program(str(bare, " --vae ", folder, vae, " --text-encoder ", folder, text));
      EXPECT_EQ(out.code, 0) << out.text;
    }
  EXPECT_EQ(
      error_line(str(bare, " --text-encoder ", folder, " --vae ", folder_.path())),
      str("generate: --vae takes a file, or a folder of diffusers with weights in it or in its "
          "vae/, and this one has none  ",
          folder_.path()));
  EXPECT_TRUE(says(run_program(str("info ", folder, "/vae")), "autoencoder"));
}

}  // namespace
}  // namespace ebb
