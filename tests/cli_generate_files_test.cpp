// Files that `ebb generate` and its neighbours read and write: what they keep, refuse and say.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/image.h"
#include "io/picture_file.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::run_program;

class CliGenerateFiles : public testing::GenerateProgram {
 protected:
  std::string picture(const std::string& name = "init") const {
    io::write_png(png(name), Tensor(DType::u8, {48, 64, 3}));
    return png(name);
  }
  static bool says(const Output& out, const std::string& text) {
    return out.text.find(text) != out.text.npos;
  }
};

TEST_F(CliGenerateFiles, texts_that_are_no_utf8__are_written_repaired) {
  const std::string odd = "\"" + (folder_ / "o") + "$(printf '\\351').png\"";
  const Output made =
      run_program(str("generate --device cpu --model ", whole(), " --steps 1 --size 64 --json ",
                      "--prompt \"$(printf 'caf\\351')\" --out ", odd));
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_TRUE(says(made, "o\uFFFD.png")) << made.text;
  const auto text = io::read_picture_text((folder_ / "o") + "\xe9.png");
  EXPECT_TRUE(text.at("parameters").starts_with("caf\uFFFD\n")) << text.at("parameters");
  EXPECT_EQ(nlohmann::json::parse(text.at("ebb")).at("prompt"), "caf\uFFFD");
}

TEST_F(CliGenerateFiles, input__is_never_overwritten) {
  const std::string init = picture(), before = file_bytes(init), model = whole();
  const std::string rule = "generate: --out must not overwrite its input  ";
  EXPECT_EQ(error_line(to(init, "--init " + init)), rule + init);
  EXPECT_EQ(error_line(to(init, "--init " + picture("other") + " --mask " + init)), rule + init);
  EXPECT_EQ(error_line(to(init, "--like " + init)).find("like"), 0u);  // it says nothing
  fs::create_symlink(init, png("link"));
  EXPECT_EQ(error_line(to(png("link"), "--init " + init)), rule + png("link"));
  EXPECT_EQ(error_line(to(model, "")), rule + model);
  EXPECT_EQ(error_line(str("upscale ", init, " --model nowhere --out ", init)),
            "upscale: --out must not overwrite its input  " + init);
  EXPECT_EQ(file_bytes(init), before);
}

TEST_F(CliGenerateFiles, preview__overwrites_no_other_file) {
  const std::string init = picture(), before = file_bytes(init), model = whole();
  const std::string rule = "generate: --preview must not overwrite its input  ";
  EXPECT_EQ(error_line(to(png(), "--init " + init + " --preview " + init + ":1")), rule + init);
  fs::create_symlink(init, png("link"));
  EXPECT_EQ(error_line(to(png(), "--control canny=" + init + " --preview " + png("link"))),
            rule + png("link"));
  const std::string same = "generate: --preview and --out name the same file  ";
  EXPECT_EQ(error_line(to(png(), "--preview " + png() + ":2")), same + png());
  EXPECT_EQ(error_line(to(png(), str("--preview ", folder_.path(), "/./x.png"))),
            str(same, folder_.path(), "/./x.png"));
  fs::create_directory(folder_ / "many");
  for (const char* folder : {"many", "many/"})
    EXPECT_EQ(error_line(to(folder_ / folder, str("--preview ", folder_ / "many/00001.png"))),
              str("generate: --preview would overwrite a picture of the folder that --out names  ",
                  folder_ / "many/00001.png"));
  EXPECT_EQ(error_line(to(png(), "--preview prev.txt")),
            "generate: --preview must be FILE[:steps] with a .png, .jpg or .webp file, or "
            "terminal[:steps] (got 'prev.txt')");
  EXPECT_EQ(error_line(to(png(), str("--preview ", init, "/prev.png")))
                .find("generate: --preview: cannot create (Not a directory)"),
            0u);
  EXPECT_EQ(file_bytes(init), before);
  EXPECT_FALSE(fs::exists(png()));
  // before a model is read
  testing::put_file(folder_ / "no.safetensors", "");
  EXPECT_EQ(error_line(str("generate --model ", folder_ / "no.safetensors", " --prompt x --out ",
                           png(), " --preview ", png())),
            same + png());
  ASSERT_EQ(run_program(to(png(), "--preview " + png("prev"))).code, 0);
  EXPECT_TRUE(fs::exists(png("prev")));
}

TEST_F(CliGenerateFiles, like_and_preview_of_one_picture__are_refused) {
  ASSERT_EQ(run_program(to(png(), "")).code, 0);
  const std::string before = file_bytes(png());
  EXPECT_EQ(error_line(str("generate --device cpu --like ", png(), " --preview ", png(), " --out ",
                           png("again"))),
            "generate: --preview must not overwrite its input  " + png());
  EXPECT_EQ(file_bytes(png()), before);
}

// As in the programs that people come from, pictures of an earlier run stay.
TEST_F(CliGenerateFiles, folder_with_pictures__goes_on_counting) {
  const std::string folder = folder_ / "many";
  Output out = run_program(to(folder + "/", "--n 2 --seed 1"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_FALSE(says(out, "note: the folder"));
  const std::string first = file_bytes(folder + "/00000.png");
  out = run_program(to(folder, "--n 2 --seed 2 --format jpg"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_TRUE(says(out, "note: the folder has pictures; new ones begin at 00002  " + folder));
  EXPECT_EQ(file_bytes(folder + "/00000.png"), first);
  EXPECT_TRUE(fs::exists(folder + "/00003.jpg"));
  EXPECT_FALSE(fs::exists(folder + "/00000.jpg"));
}

TEST_F(CliGenerateFiles, like_with_another_file__is_said) {
  ASSERT_EQ(run_program(to(png(), "--init " + picture())).code, 0);
  const std::string again = str("generate --device cpu --like ", png(), " --out ", png("again"));
  EXPECT_FALSE(says(run_program(again), "another file"));
  EXPECT_EQ(file_bytes(png()), file_bytes(png("again")));
  Tensor other(DType::u8, {48, 64, 3});
  other.span<uint8_t>()[0] = 255;
  io::write_png(png("init"), other);
  const Output out = run_program(again);
  EXPECT_EQ(out.code, 0);
  EXPECT_TRUE(says(out, "warning: like: --init is another file than the one that made the picture"))
      << out.text;
  EXPECT_FALSE(says(out, "--model is")) << out.text;
  Part text = this->text();
  text.fields = "{width=64 layers=1 heads=1 hidden=64}";
  const std::string model = checkpoint({unet(), text, autoencoder()}, "other");
  EXPECT_TRUE(says(run_program(again + " --model " + model), "warning: like: --model is another"));
  fs::remove(png("init"));
  EXPECT_EQ(error_line(again),
            str("generate: --init of the picture does not exist here; --init names another (",
                png("init"), ")  ", png()));
}

TEST_F(CliGenerateFiles, like_of_a_grid__makes_all_of_it_again) {
  ASSERT_EQ(run_program(to(png(), "--n 3 --batch 2 --seed 5")).code, 0);
  const Output out =
      run_program(str("generate --device cpu --like ", png(), " --out ", png("again")));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(file_bytes(png()), file_bytes(png("again")));
}

// What beginners give as --model: the answer is the flag that takes it.
TEST_F(CliGenerateFiles, file_that_is_no_checkpoint__is_named_with_its_flag) {
  const auto error = [&](const std::string& file) {
    const std::string line = error_line(generate(file, "--prompt fox"));
    EXPECT_TRUE(line.ends_with("  " + file)) << line;
    return line.substr(0, line.rfind("  "));
  };
  const std::string behind = " beside a checkpoint (--model)";
  EXPECT_EQ(
      error(checkpoint({autoencoder()}, "vae")),
      "model: the file is an autoencoder (autoencoder_kl), which ebb generate takes as --vae" +
          behind);
  EXPECT_EQ(error(checkpoint({text()}, "text")),
            "model: the file is a text encoder (clip_text), which ebb generate takes as "
            "--text-encoder" +
                behind);
  EXPECT_EQ(
      error(checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=2}", ""}}, "up")),
      "model: the file is an upscaler (esrgan_compact), which ebb generate takes as --upscale "
      "(and ebb upscale as --model)" +
          behind);
  EXPECT_EQ(error(checkpoint({{"ip_adapter",
                               "{features=24 tokens=4 context=64 widths=[64,128] runs=[3,1]}", ""}},
                             "ip")),
            "model: the file is a control network (ip_adapter), which ebb generate takes as "
            "--control-model, with --control," +
                behind);
  const std::string lora = folder_ / "lora.safetensors", words = folder_ / "words.safetensors";
  io::write_safetensors(lora, std::vector<io::NamedTensor>{
                                  {"lora_unet_mid_block_attentions_0_proj_in.lora_down.weight",
                                   Tensor(DType::f32, {4, 64})},
                                  {"lora_unet_mid_block_attentions_0_proj_in.lora_up.weight",
                                   Tensor(DType::f32, {64, 4})}});
  EXPECT_EQ(error(lora), "model: the file is a LoRA, which ebb generate takes as --lora" + behind);
  io::write_safetensors(words,
                        std::vector<io::NamedTensor>{{"emb_params", Tensor(DType::f32, {2, 768})}});
  const std::string embedding = error(words);
  EXPECT_EQ(embedding.find("model: the file is an embedding (textual inversion): 2 vectors for "),
            0u)
      << embedding;
  EXPECT_TRUE(says({0, embedding}, "a file of the folder --embedding-dir")) << embedding;
}

TEST_F(CliGenerateFiles, folder_of_a_training_run__is_told_what_takes_it) {
  const std::string run = folder_ / "run";
  const Output trained =
      run_program(str("train --device cpu --steps 1 --batch 2 --data ", images(8), " --out ", run));
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_EQ(error_line(generate(run, "--prompt fox")),
            str("checkpoint: the folder is of a training run, whose model is a denoiser (tiny) "
                "that reads no text, which ebb sample and ebb eval take  ",
                run, "/model-00000001.safetensors"));
}

TEST_F(CliGenerateFiles, out_that_is_a_file_of_another_kind__is_refused) {
  const std::string notes = folder_ / "notes.txt", bare = folder_ / "notes";
  testing::put_file(notes, "x"), testing::put_file(bare, "x");
  for (const std::string& out : {notes, bare})
    EXPECT_EQ(error_line(to(out, "")),
              "generate: --out must be a .png, .jpg, .webp, .safetensors or .npy file or a folder, "
              "but a file of another kind is there  " +
                  out);
  EXPECT_TRUE(error_line(to("-")).starts_with("generate: --out must name a .png, "));
}

TEST_F(CliGenerateFiles, flags_without_effect__are_said) {
  const std::string unguided = run_program(to(png(), "--negative ugly --guidance 1")).text,
                    warning = "warning: --negative has no effect with --guidance 1\n";
  EXPECT_NE(unguided.find(warning), unguided.npos) << unguided;
  EXPECT_EQ(unguided.find("negative"), unguided.rfind("negative")) << "once: " << unguided;
  EXPECT_TRUE(says(run_program(str("generate --device cpu --model ", whole(),
                                   " --steps 1 --size 64 --out ", png())),
                   "warning: there is no --prompt TEXT: nothing says what the picture shows\n"));
  EXPECT_EQ(error_line(to(png(), "--lora-dir nowhere")),
            "generate: --lora-dir is no folder  nowhere");
  const std::string model = whole();
  EXPECT_EQ(error_line(to(png(), "--lora " + model + ":abc")),
            "lora: --lora: the strength behind the file must be a number (got 'abc')  " + model);
  EXPECT_EQ(error_line(to(png(), "--hires 1.01")),
            "generate: --hires: the scale 1.01 leaves the size as it is (64x64): sides are "
            "multiples of 8");
}

TEST_F(CliGenerateFiles, mistakes_about_steps__name_what_was_given) {
  const std::string begin = str("generate --device cpu --model ", whole(), " --prompt fox --out ",
                                png(), " --size 64x48 --steps ");
  EXPECT_EQ(error_line(begin + "0"), "generate: --steps must be 1 to 10000 (got 0)");
  EXPECT_EQ(
      error_line(begin + "3 --strength 0 --init " + picture()),
      "schedule: a strength of 0 leaves none of 3 steps to run; a larger strength or more steps "
      "leave some");
  const std::string sampled =
      error_line(str("sample ", whole(), " --device cpu --out ", png("sampled")));
  EXPECT_NE(sampled.find("ebb generate makes pictures of a text with it"), sampled.npos) << sampled;
}

TEST_F(CliGenerateFiles, converted_folder__says_what_was_guessed) {
  const std::string model = whole(), out = folder_ / "folder";
  EXPECT_EQ(error_line(str("convert ", model, " ", folder_ / "x.ckpt"))
                .find("convert: OUT must be a folder of diffusers' layout, or a .safetensors file"),
            0u);
  EXPECT_EQ(
      error_line(str("convert ", model, " ", folder_ / "x.safetensors", " --layout diffusers"))
          .find("convert: OUT must be a folder of diffusers' layout"),
      0u);
  EXPECT_FALSE(fs::exists(folder_ / "x.ckpt"));
  const Output done = run_program(str("convert ", model, " ", out));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_TRUE(says(done, " is written with what was guessed, so check its config.json (num_head"))
      << done.text;
  // what a folder's config says goes with it
  std::string config = file_bytes(out + "/unet/config.json");
  const size_t at = config.find("\"attention_head_dim\": ");
  ASSERT_NE(at, config.npos) << config;
  config.insert(at, "\"num_attention_heads\": 1, ");
  testing::put_file(out + "/unet/config.json", config);
  const std::string again = folder_ / "again";
  ASSERT_EQ(run_program(str("convert ", out, " ", again, " --layout diffusers --dtype f16")).code,
            0);
  const auto unet = nlohmann::json::parse(file_bytes(again + "/unet/config.json"));
  EXPECT_EQ(unet.at("attention_head_dim"), (nlohmann::json{1, 1})) << unet;
  fs::create_directory(folder_ / "empty");
  EXPECT_EQ(error_line(str("convert ", folder_ / "empty", " ", folder_ / "y.safetensors"))
                .find("checkpoint: the folder has no unet/"),
            0u);
}

}  // namespace
}  // namespace ebb
