// `ebb train --train controlnet`: control networks beside a checkpoint that stays as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/safetensors.h"
#include "support/train_program.h"
#include "train/loader.h"

namespace ebb::testing {
namespace {

namespace fs = std::filesystem;

class cli_train_control : public TrainProgram {
 protected:
  // To each picture of data() a control image of its name; the first has half its sides.
  std::string maps() const {
    const std::string folder = folder_ / "maps";
    fs::create_directories(folder);
    put_map(folder + "/0.png", {32, 32, 3});
    put_map(folder + "/1.png", {64, 64, 3});
    put_map(folder + "/2.png", {64, 96, 3});
    return folder;
  }
  static void put_map(const std::string& file, const Shape& shape, int factor = 1) {
    Tensor t(DType::u8, shape);
    for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
      t.span<uint8_t>()[i] = (static_cast<int>(i) * factor / 7) % 2 == 0 ? 255 : 0;
    io::write_png(file, t);
  }
  static Tensor mirror(const Tensor& t) {
    Tensor out(DType::u8, t.shape());
    const int64_t w = t.shape()[1];
    for (int64_t i = 0; i < t.numel(); ++i) {
      const int64_t x = i / 3 % w, row = i / (3 * w);
      out.span<uint8_t>()[static_cast<size_t>((row * w + w - 1 - x) * 3 + i % 3)] =
          t.span<uint8_t>()[static_cast<size_t>(i)];
    }
    return out;
  }
  std::string control(const std::string& out, const std::string& flags) const {
    return train(out,
                 str("--train controlnet --control-images ", maps(), " --save-dtype f32 ", flags));
  }
  std::vector<uint8_t> picture(const std::string& flags) const {
    const Output out = run_program(to(png(), "--dtype f32 --seed 3 " + flags));
    EXPECT_EQ(out.code, 0) << out.text;
    const Tensor t = io::read_image(png());
    return {t.span<uint8_t>().begin(), t.span<uint8_t>().end()};
  }
  std::vector<uint8_t> controlled(const std::string& network) const {
    return picture(str("--control none=", maps(), "/1.png --control-model ", network));
  }
};

TEST_F(cli_train_control, new_network__changes_nothing_before_it_is_trained_and_then_the_picture) {
  const Output begun = run_program(control("begun", "--steps 1 --lr 1e-30"));
  ASSERT_EQ(begun.code, 0) << begun.text;
  EXPECT_NE(begun.text.find("of a control network, which begins as the U-Net's encoder"),
            std::string::npos)
      << begun.text;
  const auto plain = picture("");
  EXPECT_EQ(controlled(model("begun", 1)), plain);
  const Output run =
      run_program(control("run", "--steps 4 --lr 0.01 --batch 2 --flip --caption-dropout 0.5"));
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_NE(controlled(model("run", 4)), plain);
  const auto file = io::TensorFile::open(model("run", 4));
  EXPECT_TRUE(file.contains("control_model.zero_convs.0.0.weight"));
  EXPECT_EQ(file.metadata().at("ss_caption_dropout_rate"), "0.5");
  EXPECT_FALSE(file.metadata().contains("ss_network_module"));
  for (const io::TensorEntry& e : file.entries())
    EXPECT_TRUE(e.name.starts_with("control_model.")) << e.name;
}

TEST_F(cli_train_control, run_that_is_stopped_and_goes_on__has_the_same_bits) {
  const std::string flags = "--lr 0.001 --batch 2 --flip --caption-dropout 0.3 --threads 2 ";
  ASSERT_EQ(run_program(control("once", flags + "--steps 4")).code, 0);
  ASSERT_EQ(run_program(control("twice", flags + "--steps 2")).code, 0);
  const std::string on = str("train --resume --steps 4 --threads 2 --out ", folder_ / "twice");
  put_map(maps() + "/1.png", {64, 64, 3}, 3);
  EXPECT_NE(error_line(on).find("resume: the control images is not"), std::string::npos)
      << error_line(on);
  maps();  // as they were, which may lie elsewhere now
  fs::rename(maps(), folder_ / "moved");
  const Output done = run_program(str(on, " --control-images ", folder_ / "moved"));
  ASSERT_EQ(done.code, 0) << done.text;
  expect_same_tensors(model("once", 4), model("twice", 4));
}

TEST_F(cli_train_control, network_of_a_file__is_trained_further) {
  ASSERT_EQ(run_program(control("first", "--steps 2 --lr 0.01")).code, 0);
  const std::string from = model("first", 2);
  const Output out =
      run_program(control("second", str("--steps 1 --lr 1e-30 --control-model ", from)));
  ASSERT_EQ(out.code, 0) << out.text;
  expect_same_tensors(from, model("second", 1));
}

// The step on a picture that is mirrored is that on mirrored files. A new network does not see its
// image before its second step, so it is one that was trained.
TEST_F(cli_train_control, control_image__is_mirrored_with_its_picture) {
  uint64_t seed = 0;
  while (!train::flips(seed, 0)) ++seed;
  ASSERT_EQ(run_program(control("first", "--steps 2 --lr 0.01")).code, 0);
  const auto run = [&](const std::string& name, bool mirrored, const std::string& flags) {
    for (const std::string& from : {data(), maps()}) {
      fs::create_directories(folder_ / name + from.substr(from.rfind('/')));
      Tensor t = io::read_image(from + "/1.png");
      if (mirrored) t = mirror(t);
      io::write_png(folder_ / name + from.substr(from.rfind('/')) + "/1.png", t);
    }
    const Output out = run_program(
        str("train --device cpu --model ", whole(), " --data ", folder_ / name,
            "/data --resolution 64 ",
            "--no-buckets --dtype f32 --caption-prefix fox --train controlnet --control-images ",
            folder_ / name, "/maps --steps 1 --lr 0.01 --save-dtype f32 --seed ", seed, " --out ",
            folder_ / name, "/run --control-model ", model("first", 2), " ", flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return folder_ / name + "/run/model-00000001.safetensors";
  };
  const std::string flipped = run("a", false, "--flip"), plain = run("b", false, "");
  expect_same_tensors(flipped, run("c", true, ""));
  const auto one = io::TensorFile::open(flipped), other = io::TensorFile::open(plain);
  const std::string name = "control_model.zero_convs.0.0.weight";
  EXPECT_FALSE(std::ranges::equal(one.load(name).span<float>(), other.load(name).span<float>()));
}

TEST_F(cli_train_control, images_that_do_not_fit_their_pictures__are_errors_with_the_name) {
  const auto says = [&](const std::string& words) {
    const std::string is = error_line(
        train("x", str("--steps 1 --train controlnet --control-images ", folder_ / "maps")));
    EXPECT_NE(is.find(words), std::string::npos) << is;
  };
  const std::string folder = maps();
  fs::remove(folder + "/2.png");
  says("has no PNG, JPEG or WebP picture of the name '2'  for ");
  // which is told before the checkpoint is read
  const std::string early = error_line(train_of(
      folder_ / "maps/1.png", "x", "--steps 1 --train controlnet --control-images " + folder));
  EXPECT_NE(early.find("picture of the name '2'"), std::string::npos) << early;
  put_map(folder + "/2.png", {64, 64, 3});
  says("must have the shape of the picture, to a tenth (64x64, the picture 96x64)  ");
  put_file(folder + "/2.png", "no picture");
  says("control_images: pictures cannot be read (1): ");
  says("maps/2.png");
  fs::copy_file(maps() + "/1.png", folder + "/other.png");
  const Output out = run_program(control("unused", "--steps 1"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("control images without a picture left out"), std::string::npos)
      << out.text;
}

TEST_F(cli_train_control, settings_that_cannot_be__are_refused) {
  const auto says = [&](const std::string& flags, const std::string& words) {
    const std::string is = error_line(train("x", "--steps 1 " + flags));
    EXPECT_NE(is.find(words), std::string::npos) << is;
  };
  const std::string images = str("--control-images ", maps(), ' ');
  says("--train controlnet", "control_images: is missing");
  says(images, "are of a control network that is trained");
  says("--train controlnet,unet " + images, "is trained alone");
  says("--train controlnet --adapter lora " + images, "without an adapter (--adapter lora)");
  says("--train controlnet --prior " + data() + " " + images, "is not for control networks");
  says("--train controlnet --control-images " + maps() + ":2", "have no repeats of their own");
  says("--train controlnet --control-images " + (folder_ / "none"), "control_images: no such file");
  says("--train controlnet --control-model " + whole() + " " + images, "train: --control-model");
}

}  // namespace
}  // namespace ebb::testing
