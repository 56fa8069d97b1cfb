// `ebb train --model CHECKPOINT --sample-every`: pictures of prompts while it trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_samples : public TrainProgram {
 protected:
  std::string sample(const std::string& out, int step) const {
    return folder_ / str(out, "/samples/step-0000000", step, ".png");
  }
  // Picture `row`, `column` of a grid of pictures of 64x64, with 2 pixels between and around.
  static Tensor cut(const Tensor& grid, int64_t row, int64_t column) {
    constexpr int64_t side = 64, pitch = side + 2;
    Tensor out(DType::u8, {side, side, 3});
    const int64_t width = grid.shape()[1];
    for (int64_t y = 0; y < side; ++y)
      std::copy_n(
          grid.span<uint8_t>().begin() + ((2 + row * pitch + y) * width + 2 + column * pitch) * 3,
          side * 3, out.span<uint8_t>().begin() + y * side * 3);
    return out;
  }
  // What `ebb generate` makes with the usual settings, one of two pictures.
  Tensor generated(const std::string& from, const std::string& prompt, int index) {
    const Output out = run_program(
        str("generate --device cpu --model ", from, " --prompt '", prompt, "' --n 1 --first-image ",
            index, " --size 64 --dtype f32 --seed 5 --overwrite --out ", png("one")));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png("one"));
  }
  // The flag for a folder with the embedding of a step.
  std::string with_embedding(const std::string& out, int step) const {
    const std::string folder = folder_ / "embeddings";
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(model(out, step), folder + "/zorro.safetensors");
    return str(" --embedding-dir ", folder);
  }
  static int difference(const Tensor& a, const Tensor& b) {  // the largest
    int out = 0;
    for (size_t i = 0; i < a.span<uint8_t>().size(); ++i)
      out = std::max(out, std::abs(a.span<uint8_t>()[i] - b.span<uint8_t>()[i]));
    return out;
  }
  static bool same(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && std::ranges::equal(a.span<uint8_t>(), b.span<uint8_t>());
  }
};

constexpr const char* sampled_lora =
    "--adapter lora --rank 4 --alpha 4 --lr 0.01 --save-dtype f32 ";

TEST_F(cli_train_samples, of_an_adapter__are_what_generating_with_its_file_makes) {
  const std::string flags =
      str(sampled_lora, "--steps 4 --sample-every 2 --sample-prompts 'fox; a fox in snow' ");
  const Output out = run_program(train("run", flags));
  ASSERT_EQ(out.code, 0) << out.text;
  const Tensor first = io::read_image(sample("run", 2)), last = io::read_image(sample("run", 4));
  EXPECT_EQ(last.shape(), (Shape{2 * 66 + 2, 2 * 66 + 2, 3}));
  EXPECT_EQ(io::read_png_text(sample("run", 4)).at("rows"), R"(["fox","a fox in snow"])");
  const std::string from = str(whole(), " --lora ", model("run", 4));
  // two at a time there, one here
  EXPECT_LE(difference(cut(last, 0, 0), generated(from, "fox", 0)), 1);
  EXPECT_LE(difference(cut(last, 1, 1), generated(from, "a fox in snow", 1)), 1);
  EXPECT_GT(difference(cut(last, 0, 0), cut(last, 0, 1)), 9);
  EXPECT_FALSE(same(first, last));
  // nothing else is left there
  const std::filesystem::directory_iterator files(folder_ / "run/samples");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(cli_train_samples, leave_the_training_as_it_is) {
  ASSERT_EQ(run_program(train("plain", str(sampled_lora, "--steps 3"))).code, 0);
  ASSERT_EQ(run_program(train("drawn", str(sampled_lora, "--steps 2 --sample-every 1"))).code, 0);
  const Output on =
      run_program(str("train --resume --steps 3 --sample-every 2 --sample-prompts fox "
                      "--sample-pictures 1 --out ",
                      folder_ / "drawn"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(folder_ / "plain/state-00000003.safetensors",
                      folder_ / "drawn/state-00000003.safetensors");
  EXPECT_EQ(io::read_png_text(sample("drawn", 3)).at("rows"), R"(["fox"])");
}

TEST_F(cli_train_samples, without_prompts__are_of_the_first_captions) {
  const Output out = run_program(
      train("run", str(sampled_lora,
                       "--steps 1 --sample-every 1 --sample-pictures 1 --caption-dropout 1 "
                       "--caption-prefix 'photo:'")));
  ASSERT_EQ(out.code, 0) << out.text;
  const std::string rows = io::read_png_text(sample("run", 1)).at("rows");
  EXPECT_EQ(rows.find(R"(["photo: a fox, number 0, in snow","photo: a fox, number 1)"), 0U) << rows;
}

TEST_F(cli_train_samples, of_a_whole_network_and_of_an_embedding__are_drawn_too) {
  const std::string often =
      "--steps 1 --sample-every 1 --sample-prompts zorro --sample-pictures 1 --save-dtype f32 ";
  ASSERT_EQ(run_program(train("net", str("--lr 0.01 ", often))).code, 0);
  EXPECT_TRUE(
      same(cut(io::read_image(sample("net", 1)), 0, 0), generated(model("net", 1), "zorro", 0)));
  ASSERT_EQ(run_program(train("word", str("--train embedding --embedding zorro --vectors 2 "
                                          "--caption-prefix 'a zorro' --lr 0.1 ",
                                          often)))
                .code,
            0);
  const Tensor word = cut(io::read_image(sample("word", 1)), 0, 0);
  EXPECT_TRUE(same(word, generated(str(whole(), with_embedding("word", 1)), "zorro", 0)));
  EXPECT_FALSE(same(word, generated(whole(), "zorro", 0)));
}

TEST_F(cli_train_samples, of_a_control_network__are_drawn_with_its_images) {
  const std::string flags = str("--train controlnet --control-images ", data(),
                                " --steps 4 --lr 0.3 --save-dtype f32 --sample-every 4 "
                                "--sample-pictures 1 ");
  const std::string hints[] = {folder_ / "black.png", folder_ / "white.png"};
  for (const int i : {0, 1}) {
    const Tensor hint(DType::u8, {64, 64, 3});
    std::ranges::fill(hint.span<uint8_t>(), static_cast<uint8_t>(255 * i));
    io::write_png(hints[i], hint);
  }
  const Output given =
      run_program(train("given", str(flags, "--sample-prompts 'fox;fox' --sample-controls '",
                                     hints[0], ";", hints[1], "'")));
  ASSERT_EQ(given.code, 0) << given.text;
  const Tensor grid = io::read_image(sample("given", 4));
  const auto alone = [&](const std::string& hint, const std::string& run,
                         const std::string& prompt) {
    return generated(str(whole(), " --control none=", hint, " --control-model ", model(run, 4)),
                     prompt, 0);
  };
  for (const int i : {0, 1})
    EXPECT_LE(difference(cut(grid, i, 0), alone(hints[i], "given", "fox")), 1) << i;
  EXPECT_GT(difference(cut(grid, 0, 0), cut(grid, 1, 0)), 4);
  // first captions, each with the image of its picture
  const Output first = run_program(train("first", flags));
  ASSERT_EQ(first.code, 0) << first.text;
  const Tensor second = alone(data() + "/1.png", "first", "a fox, number 1, in snow");
  EXPECT_LE(difference(cut(io::read_image(sample("first", 4)), 1, 0), second), 1);
}

TEST_F(cli_train_samples, that_cannot_be_drawn__are_told_and_left) {
  const std::string flags =
      str(sampled_lora, "--sample-every 1 --sample-pictures 16 --sample-prompts fox ");
  // of numbers that f16 does not hold no file can be made, as where memory runs out
  const Output far = run_program(train(
      "far", "--adapter lora --rank 4 --steps 2 --lr 1e5 --checkpoint-every 0 --sample-every 1 "));
  EXPECT_NE(far.text.find("no samples of step 1: "), std::string::npos) << far.text;
  EXPECT_NE(far.text.find("has numbers beyond f16"), std::string::npos) << far.text;
  EXPECT_NE(far.text.find("step 2/2"), std::string::npos) << far.text;
  EXPECT_FALSE(std::filesystem::exists(sample("far", 1)));
  // the end that is asked for while they are drawn
  const std::string run = str("'", program_path(), "' ", train("run", flags + "--steps 9999"));
  const Output stopped = run_command(str(
      "{ ", run, " & p=$!; for i in $(seq 600); do ls '", folder_ / "run",
      "/samples' 2>/dev/null | grep -q tmp && break; sleep 0.05; done; kill -TERM $p; wait $p; }"));
  EXPECT_EQ(stopped.code, 143) << stopped.text;
  EXPECT_NE(stopped.text.find("no samples of step 1: the run ends"), std::string::npos)
      << stopped.text;
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "run/samples"));
  // what a kill leaves there goes with the next start
  std::filesystem::create_directories(folder_ / "run/samples/model.tmp-123-0");
  put_file(folder_ / "run/samples/model.tmp-123-0/model.safetensors", "half");
  const Output on =
      run_program(str("train --resume --steps 3 --sample-pictures 1 --out ", folder_ / "run"));
  ASSERT_EQ(on.code, 0) << on.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/samples/model.tmp-123-0"));
  EXPECT_TRUE(std::filesystem::exists(sample("run", 3)));
}

TEST_F(cli_train_samples, mistakes__are_one_error_before_anything_is_made) {
  const auto line = [&](const std::string& flags) {
    return error_line(train("run", str(sampled_lora, "--steps 1 ", flags)));
  };
  EXPECT_NE(line("--sample-prompts fox").find("no effect without --sample-every"),
            std::string::npos);
  EXPECT_NE(line("--sample-every 1 --sample-pictures 17").find("must be 1 to 16 (17)"),
            std::string::npos);
  put_file(folder_ / "none.txt", "# a comment\n\n");
  const std::string none = str("--sample-every 1 --sample-prompts ", folder_ / "none.txt");
  EXPECT_NE(line(none).find("the file has no prompt"), std::string::npos) << line(none);
  EXPECT_NE(line("--sample-every 1 --sample-prompts lost.txt").find("no such file  lost.txt"),
            std::string::npos);
  EXPECT_NE(line("--sample-every 1 --sample-prompts '<lora:x:1>'").find("--lora-dir"),
            std::string::npos);
  std::string many;
  for (int i = 0; i < 17; ++i) many += str("fox ", i, "\n");
  put_file(folder_ / "many.txt", many);
  const std::string all = str("--sample-every 1 --sample-prompts ", folder_ / "many.txt");
  EXPECT_NE(line(all).find("must be at most 16 (17)"), std::string::npos) << line(all);
  EXPECT_NE(error_line(train("run", "--train autoencoder --sample-every 1 --steps 1"))
                .find("is of denoisers"),
            std::string::npos);
  const auto control = [&](const std::string& flags) {
    return error_line(train("run", str("--train controlnet --control-images ", data(),
                                       " --sample-every 1 --steps 1 ", flags)));
  };
  EXPECT_NE(control("--sample-prompts fox").find("want --sample-controls"), std::string::npos);
  const std::string two = str("'", data(), "/0.png;", data(), "/1.png'");
  EXPECT_NE(control(str("--sample-prompts 'a;b;c' --sample-controls ", two))
                .find("one for each of the prompts (2, and 3 prompts)"),
            std::string::npos);
  EXPECT_NE(line("--sample-every 1 --sample-prompts fox --sample-controls " + two)
                .find("by a control network (--train controlnet)"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

}  // namespace
}  // namespace ebb::testing
