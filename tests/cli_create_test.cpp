// `ebb create`: checkpoints with drawn weights, and training them from scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_create : public TrainProgram {
 protected:
  static constexpr const char* small =
      R"({"size": 64,
          "unet": {"model_channels": 64, "channel_mult": [1, 2], "num_res_blocks": 1,
                   "input_depths": [1, 0], "output_depths": [0, 0, 1, 1], "num_heads": 0,
                   "num_head_channels": 64, "context": 64},
          "text_encoder": {"width": 64, "layers": 2, "heads": 1, "hidden": 64},
          "autoencoder": {"channels": 32, "channel_mult": [1, 1, 1, 1], "res_blocks": 1}})";

  std::string create(const std::string& networks, const std::string& name,
                     const std::string& flags = "") const {
    put_file(folder_ / "networks.json", networks);
    return str("create ", folder_ / "networks.json", " ", file(name), " ", flags);
  }
  std::string file(const std::string& name) const { return folder_ / (name + ".safetensors"); }
  static std::string with(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  }
  // The deviation of a tensor's numbers from 0.
  static double deviation(const io::TensorFile& f, const std::string& name) {
    const Tensor t = f.load(f.find(name));
    double square = 0;
    for (const float v : t.span<float>()) square += double{v} * double{v};
    return std::sqrt(square / static_cast<double>(t.numel()));
  }
};

TEST_F(cli_create, networks_of_a_file__are_drawn_by_the_seed) {
  const Output out = run_program(create(small, "a", "--seed 3"));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto a = io::TensorFile::open(file("a"));
  EXPECT_EQ(a.metadata().at("modelspec.resolution"), "64x64");
  const std::string table =
      "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight";
  EXPECT_EQ(a.find(table).shape, (Shape{49408, 64}));
  EXPECT_NEAR(deviation(a, table), 0.02, 0.001);
  EXPECT_EQ(deviation(a, "model.diffusion_model.out.2.weight"), 0);  // it begins with zeros
  ASSERT_EQ(run_program(create(small, "b", "--seed 3")).code, 0);
  ASSERT_EQ(run_program(create(small, "c", "--seed 4")).code, 0);
  EXPECT_EQ(file_bytes(file("a")), file_bytes(file("b")));
  EXPECT_NE(file_bytes(file("a")), file_bytes(file("c")));
  EXPECT_NE(error_line(create(small, "a")).find("OUT exists"), std::string::npos);
}

TEST_F(cli_create, checkpoint__is_trained_and_generates_pictures_of_its_size) {
  ASSERT_EQ(run_program(create(small, "new")).code, 0);
  const Output out = run_program(
      train_of(file("new"), "run", "--train unet,text_encoder --steps 2 --lr 1e-3 --precond v"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(io::TensorFile::open(model("run", 2)).metadata().at("modelspec.resolution"), "64x64");
  const Output picture = run_program(str("generate --device cpu --model ", model("run", 2),
                                         " --prompt fox --steps 1 --out ", png()));
  ASSERT_EQ(picture.code, 0) << picture.text;
  EXPECT_EQ(io::read_image(png()).shape(), (Shape{64, 64, 3}));
  EXPECT_EQ(run_program(str("convert ", file("new"), " ", folder_ / "folder")).code, 0);
  EXPECT_EQ(run_program("info " + file("new")).code, 0);
}

TEST_F(cli_create, networks_that_do_not_fit__are_one_error) {
  const auto line = [&](const std::string& from, const std::string& to) {
    return error_line(create(with(small, from, to), "x"));
  };
  EXPECT_NE(line("\"context\": 64", "\"context\": 96").find("must be width of the text_encoder"),
            std::string::npos);
  EXPECT_NE(line("\"heads\": 1", "\"heads\": 2").find("a file does not say heads"),
            std::string::npos);
  EXPECT_NE(line("\"size\": 64", "\"size\": 63").find("size must be a multiple of 8"),
            std::string::npos);
  EXPECT_NE(line("\"unet\"", "\"unett\"").find("unknown section 'unett'"), std::string::npos);
  EXPECT_NE(line("\"hidden\"", "\"hiden\"").find("hiden"), std::string::npos);
  EXPECT_NE(line("\"channel_mult\": [1, 2]", "\"channel_mult\": []")
                .find("ldm_unet: needs levels (0) and residual blocks (1)  " + folder_.path()),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(file("x")));
}

TEST_F(cli_create, autoencoder__is_trained_on_pictures_alone) {
  ASSERT_EQ(run_program(create(small, "new")).code, 0);
  const std::string pictures = data(),
                    flags = "--train autoencoder --batch 2 --lr 0.002 --flip --save-dtype f32 ";
  for (int i = 0; i < 3; ++i) std::filesystem::remove(str(pictures, "/", i, ".txt"));
  const Output once = run_program(train_of(file("new"), "once", flags + "--steps 4 --threads 1"));
  ASSERT_EQ(once.code, 0) << once.text;
  ASSERT_EQ(run_program(train_of(file("new"), "twice", flags + "--steps 2 --threads 1")).code, 0);
  put_file(str(pictures, "/0.txt"), "a caption, which is not read");
  const Output on =
      run_program(str("train --resume --steps 4 --threads 1 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(model("once", 4), model("twice", 4));
  const auto before = io::TensorFile::open(file("new"));
  const auto after = io::TensorFile::open(model("once", 4));
  int64_t changed = 0;
  for (const io::TensorEntry& e : before.entries()) {
    const Tensor x = before.load(e), y = after.load(after.find(e.name));
    const bool same = std::ranges::equal(x.span<float>(), y.span<float>());
    changed += !same;
    EXPECT_TRUE(same || e.name.starts_with("first_stage_model.")) << e.name;
  }
  EXPECT_GT(changed, 50);
  const Output unit = run_program(train_of(file("new"), "unit",
                                           flags + "--steps 4 --threads 1 "
                                                   "--unit-latents"));
  ASSERT_EQ(unit.code, 0) << unit.text;
  EXPECT_NE(unit.text.find("which is 5.48"), std::string::npos) << unit.text;
  const auto scaled = io::TensorFile::open(model("unit", 4));
  const std::string conv = "first_stage_model.post_quant_conv.weight";
  EXPECT_NE(deviation(scaled, conv), deviation(after, conv));
  expect_same_tensors(folder_ / "unit/state-00000004.safetensors",
                      folder_ / "once/state-00000004.safetensors");
}

TEST_F(cli_create, cache_folder_that_cannot_be__is_an_error_before_pictures_are_read) {
  const std::string error =
      error_line(str("train --device cpu --train autoencoder --model ", whole(), " --data ", data(),
                     " --cache-dir /proc/x --steps 1 --out ", folder_ / "run"));
  EXPECT_NE(error.find("cache_dir: cannot make the folder"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(cli_create, settings_of_denoisers__are_refused_of_an_autoencoder) {
  const auto line = [&](const std::string& flags) {
    return error_line(train("run", "--steps 1 " + flags));
  };
  EXPECT_NE(line("--train autoencoder --caption-dropout 0.1").find("captions are not read"),
            std::string::npos);
  EXPECT_NE(line("--train autoencoder --adapter lora").find("no adapters of autoencoders"),
            std::string::npos);
  EXPECT_NE(line("--train autoencoder,unet").find("is trained alone"), std::string::npos);
  EXPECT_NE(line("--train autoencoder --precond v").find("no effect on an autoencoder"),
            std::string::npos);
  EXPECT_NE(line("--kl-weight 1").find("are of an autoencoder that is trained"), std::string::npos);
}

}  // namespace
}  // namespace ebb::testing
