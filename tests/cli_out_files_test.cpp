// Where commands write: what --out and OUT replace, follow, refuse and make.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "io/image.h"
#include "io/safetensors.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::run_program;

class CliOutFiles : public testing::GenerateProgram {
 protected:
  // A file of tensors that is no run's.
  std::string lora(const std::string& name) const {
    const io::NamedTensor some{"lora_unet_x.alpha", Tensor(DType::f32, {1})};
    io::write_safetensors(folder_ / name, {&some, 1}, {{"format", "pt"}});
    return folder_ / name;
  }
  static int code(const std::string& words) {
    const Output out = run_program(words);
    EXPECT_EQ(out.code, 0) << words << '\n' << out.text;
    return out.code;
  }
};

TEST_F(CliOutFiles, latents__replace_latents_of_ebb_and_nothing_else) {
  const std::string file = lora("style.safetensors"), before = file_bytes(file),
                    keeps = "; another name keeps it, --overwrite replaces it  ";
  EXPECT_EQ(error_line(to(file)),
            "generate: --out would replace a file that is no latents or "
            "images by ebb" +
                keeps + file);
  EXPECT_EQ(file_bytes(file), before);
  EXPECT_EQ(code(to(file, "--overwrite")), 0);
  EXPECT_EQ(code(to(file, "--seed 2")), 0);
  const std::string npy = folder_ / "x.npy";
  EXPECT_EQ(code(to(npy)), 0);
  EXPECT_EQ(error_line(to(npy)),
            "generate: --out would replace a file that does not say who wrote "
            "it" +
                keeps + npy);
  EXPECT_EQ(code(to(npy, "--overwrite")), 0);
}

TEST_F(CliOutFiles, picture__replaces_pictures_only) {
  testing::put_file(png(), "notes");
  const std::string error =
      str("--out would replace a file that is no picture; another name keeps it, --overwrite "
          "replaces it  ",
          png());
  EXPECT_EQ(error_line(to(png())), "generate: " + error);
  io::write_png(png("small"), Tensor(DType::u8, {8, 8, 3}));
  EXPECT_EQ(error_line(str("upscale ", png("small"), " --model nowhere --out ", png())),
            "upscale: " + error);
  EXPECT_EQ(file_bytes(png()), "notes");
  EXPECT_EQ(code(to(png(), "--overwrite")), 0);
  EXPECT_EQ(code(to(png())), 0);
}

TEST_F(CliOutFiles, link__is_followed) {
  fs::create_directory(folder_ / "away");
  fs::create_symlink("away/fox.png", png("link"));
  EXPECT_EQ(code(to(png("link"))), 0);
  EXPECT_TRUE(fs::is_symlink(png("link")));
  EXPECT_TRUE(fs::is_regular_file(folder_ / "away/fox.png"));
}

TEST_F(CliOutFiles, folder_of_a_single_file__must_be_there) {
  const std::string missing = folder_ / "dri";
  for (const char* name : {"/fox.png", "/fox.npy"})
    EXPECT_EQ(error_line(to(missing + name)), str("generate: --out: there is no folder ", missing,
                                                  " (mkdir -p makes it)  ", missing, name));
  EXPECT_EQ(error_line(to(png(), str("--preview ", missing, "/x.png"))),
            str("generate: --preview: there is no folder ", missing, " (mkdir -p makes it)  ",
                missing, "/x.png"));
  EXPECT_FALSE(fs::exists(missing));
  EXPECT_EQ(code(to(missing + "/many/")), 0);
  EXPECT_TRUE(fs::exists(missing + "/many/00000.png"));
}

TEST_F(CliOutFiles, memory__is_checked_before_a_model_is_read) {
  testing::put_file(folder_ / "no.safetensors", "");
  EXPECT_EQ(error_line(str("generate --model ", folder_ / "no.safetensors",
                           " --prompt x --memory abc --out ", png())),
            "generate: --memory must be auto or a number and a unit: MB or M (10^6 bytes), GB or G "
            "(10^9), MiB (2^20) or GiB (2^30) (got 'abc')");
  EXPECT_EQ(error_line(to(png(), "--memory 9999999999999GB")),
            "generate: --memory is out of range: more than 0 and less than 10^9 units (got "
            "'9999999999999GB')");
  EXPECT_EQ(code(to(png(), "--memory '5 GB'")), 0);
  EXPECT_EQ(code(to(png(), "--memory 800MiB")), 0);
}

// The folder of the pictures becomes a file, so that the next one cannot be written.
TEST_F(CliOutFiles, error_within_a_run__says_what_was_written) {
  const std::string many = folder_ / "many", kept = folder_ / "kept";
  testing::put_file(kept, "");
  // at once: a folder that is missing is made again
  std::jthread exchange([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !fs::exists(many + "/00001.png")) std::this_thread::yield();
    ::renameat2(AT_FDCWD, many.c_str(), AT_FDCWD, kept.c_str(), RENAME_EXCHANGE);
  });
  const Output out = run_program(to(many + "/", "--n 40 --batch 1"));
  exchange.request_stop();
  exchange.join();
  EXPECT_EQ(out.code, 2) << out.text;
  int64_t written = 0;
  for (const auto& entry : fs::directory_iterator(kept))
    written += entry.path().extension() == ".png" ? 1 : 0;
  EXPECT_GE(written, 2);
  EXPECT_NE(out.text.find(str("generate: ", written, " of 40 images written to ", many)),
            out.text.npos)
      << out.text;
}

// A limit of the size of files stands for the full disk.
TEST_F(CliOutFiles, folder_that_gets_no_picture__is_not_left) {
  // 4 or 8 KB, by the shell: less than a picture, more than OpenMP's own files
  const std::string limited = "--version; ( trap '' XFSZ; ulimit -f 8; '" +
                              testing::program_path() + "' ",
                    many = folder_ / "new/many";
  const Output out = run_program(limited + to(many + "/", "--n 3") + " )");
  EXPECT_EQ(out.code, 2) << out.text;
  EXPECT_NE(out.text.find("cannot write (File too large)  " + many), out.text.npos) << out.text;
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

// A file that appears when the first preview does, which is after the look at what is there.
TEST_F(CliOutFiles, file_that_appears_meanwhile__is_not_replaced) {
  for (const char* name : {"late.npy", "late.safetensors", "late.png"}) {
    const std::string file = folder_ / name, preview = folder_ / "preview.png";
    const Output out =
        run_program(str("--version; { '", testing::program_path(), "' ",
                        to(file, "--n 40 --batch 1 --preview " + preview),
                        " & while kill -0 $! 2>/dev/null; do if [ -e ", preview,
                        " ]; then echo notes > ", file, "; break; fi; done; wait $!; }"));
    EXPECT_EQ(out.code, 2) << out.text;
    const std::string kept = folder_ / ("late.kept-1" + fs::path(name).extension().string());
    EXPECT_NE(out.text.find("what was made is kept in " + kept + "  " + file), out.text.npos)
        << out.text;
    EXPECT_EQ(file_bytes(file), "notes\n");
    EXPECT_GT(file_bytes(kept).size(), 40U);
    fs::remove(preview);
  }
}

// Both look before either has written.
TEST_F(CliOutFiles, two_converts_to_one_file__keep_both_results) {
  const std::string in = whole(), out = folder_ / "out.safetensors";
  io::write_safetensors(out + ".one", {}, {});
  io::TensorToWrite slow{"x", "F32", {1}, [&](const io::ByteSink& give) {
                           EXPECT_EQ(code(str("convert ", in, " ", out)), 0);
                           give(std::vector<uint8_t>(4));
                         }};
  EXPECT_THROW(io::stream_safetensors(out, {&slow, 1}, {}, io::Existing::kept), Error);
  EXPECT_EQ(fs::file_size(out), fs::file_size(in));
  EXPECT_TRUE(fs::exists(folder_ / "out.kept-1.safetensors"));
}

TEST_F(CliOutFiles, convert__replaces_only_what_it_is_told_to) {
  const std::string in = whole(), other = lora("style.safetensors"), before = file_bytes(other);
  EXPECT_EQ(error_line(str("convert ", in, " ", other)),
            "convert: OUT exists; another name keeps it, --overwrite replaces it  " + other);
  EXPECT_EQ(file_bytes(other), before);
  fs::create_symlink(in, folder_ / "link.safetensors");
  const std::string rule = "convert: must not overwrite its input  ";
  for (const std::string& out : {in, folder_ / "link.safetensors"})
    EXPECT_EQ(error_line(str("convert ", in, " ", out, " --overwrite")), rule + out);
  EXPECT_EQ(error_line(str("convert ", in, " ", other, " --overwrite --lora ", other)),
            rule + other);
  EXPECT_EQ(file_bytes(other), before);
  EXPECT_EQ(code(str("convert ", in, " ", other, " --overwrite")), 0);
  EXPECT_EQ(fs::file_size(other), fs::file_size(in));
}

TEST_F(CliOutFiles, convert_to_a_file_of_another_kind__is_refused) {
  for (const char* ending : {".png", ".jpg", ".onnx", ".gguf", ".zip", ".json", ".txt", ".npy"}) {
    const std::string out = folder_ / ("out" + std::string(ending));
    EXPECT_NE(
        error_line(str("convert ", whole(), " ", out)).find(str("kind (", ending, ")  ", out)),
        std::string::npos);
    EXPECT_FALSE(fs::exists(out));
  }
}

// An embedding that is broken is of interest where a prompt may mean it.
TEST_F(CliOutFiles, broken_embedding__is_told_of_where_it_is_named) {
  testing::put_file(folder_ / "words/junk.pt", "x");
  const std::string with = str("--embedding-dir ", folder_ / "words");
  EXPECT_EQ(run_program(to(png(), with)).text.find("a file is left out"), std::string::npos);
  EXPECT_NE(run_program(to(png(), with + " --negative Junk")).text.find("a file is left out"),
            std::string::npos);
}

}  // namespace
}  // namespace ebb
