// `ebb generate` with control networks and an upscaler, and `ebb upscale`.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::Output;
using testing::run_program;

class CliControl : public testing::GenerateProgram {
 protected:
  std::string network(const std::string& fields = "") const {
    return checkpoint({{"control_net",
                        "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
                        "middle_depth=1 num_heads=0 num_head_channels=64 context=64 "
                        "conv_projection=false hint_channels=[8,8,8,8] " +
                            fields + "}",
                        "control_model."}},
                      "control");
  }
  std::string image_adapter(const std::string& runs = "[3,1]") const {
    return checkpoint(
        {{"ip_adapter", "{features=24 tokens=4 context=64 widths=[64,128] runs=" + runs + "}", ""}},
        "ip_adapter");
  }
  std::string image_encoder(const std::string& fields = "") const {
    return checkpoint({{"clip_vision",
                        "{width=32 layers=2 heads=16 hidden=37 image_size=28 patch=7 "
                        "projection=24 " +
                            fields + "}",
                        ""}},
                      "image_encoder");
  }
  std::string upscaler() const {
    return checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=2}", ""}}, "upscaler");
  }
  // 40x60: neither the size nor the shape of the pictures.
  std::string image() const {
    Tensor out(DType::u8, {40, 60, 3});
    for (int64_t i = 0; i < out.numel(); ++i)
      out.span<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * i / 97);
    const std::string file = folder_ / "map.png";
    io::write_png(file, out);
    return file;
  }
  std::vector<uint8_t> pixels(const std::string& flags) const {
    const Output out = run_program(generate(whole(), "--prompt fox " + flags));
    EXPECT_EQ(out.code, 0) << out.text;
    const Tensor t = io::read_image(png());
    return {t.span<uint8_t>().begin(), t.span<uint8_t>().end()};
  }
};

}  // namespace

TEST_F(CliControl, control_network__changes_the_picture_by_its_strength) {
  const std::string model = " --control-model " + network(), map = image();
  // in bf16, zeros that are added are one more rounding
  const auto made = [&](const std::string& flags) { return pixels("--dtype f32 " + flags); };
  const auto plain = made("");
  const auto canny = made("--control canny=" + map + model);
  EXPECT_NE(canny, plain);
  EXPECT_NE(made("--control none=" + map + model), canny);
  EXPECT_EQ(made("--control canny=" + map + ":0" + model), plain);
  EXPECT_NE(made("--control canny=" + map + " --control-mode control" + model), canny);
  EXPECT_NE(made("--control canny=" + map + model + " --control none=" + map + model), canny);
}

// Of pictures of 64x48: all of the image is in the middle, in the colour of most of its edge.
TEST_F(CliControl, resize_fill__puts_the_image_into_the_colour_of_its_edge) {
  Tensor wide(DType::u8, {32, 64, 3}), filled(DType::u8, {48, 64, 3});
  const auto in = wide.span<uint8_t>(), out = filled.span<uint8_t>();
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t x = i / 3 % 64, y = i / 192;
    const bool at_edge = x == 0 || x == 63 || y == 0 || y == 31;
    in[i] = at_edge && x % 4 != 1 ? 50 : static_cast<uint8_t>(i * i / 97);
  }
  std::ranges::fill(out, 50);
  std::ranges::copy(in, out.begin() + static_cast<std::ptrdiff_t>(8 * 192));
  io::write_png(folder_ / "wide.png", wide);
  io::write_png(folder_ / "filled.png", filled);
  const auto made = [&](const std::string& flags) {
    return pixels("--dtype f32 --control-model " + network() + " --control none=" + flags);
  };
  const auto whole = made(folder_ / "wide.png" + std::string(" --control-resize fill"));
  EXPECT_EQ(whole, made(folder_ / "filled.png"));
  EXPECT_NE(whole, made(folder_ / "wide.png"));
}

TEST_F(CliControl, image_adapter__changes_the_picture_by_its_strength) {
  const std::string flags = " --control-model " + image_adapter() + " --image-encoder ",
                    encoder = image_encoder(), map = image(), folder = folder_ / "encoder";
  const auto plain = pixels("");
  const auto half = pixels("--control none=" + map + ":0.5" + flags + encoder);
  EXPECT_NE(half, plain);
  EXPECT_NE(pixels("--control none=" + map + flags + encoder), half);
  EXPECT_NE(pixels("--control none=" + map + ":0.5:0:0.5" + flags + encoder), half);
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(encoder, folder + "/model.safetensors");
  EXPECT_EQ(pixels("--control none=" + map + ":0.5" + flags + folder), half);
  const std::string first = folder_ / "first.png";
  std::filesystem::rename(png(), first);
  ASSERT_EQ(run_program(str("generate --device cpu --like ", first, " --out ", png())).code, 0);
  const Tensor t = io::read_image(png());
  EXPECT_EQ(std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end()), half);
}

TEST_F(CliControl, image_adapter__acts_in_its_region_and_through_its_blocks) {
  const std::string flags = "--control none=" + image() + " --control-model " + image_adapter() +
                            " --image-encoder " + image_encoder() + ' ';
  Tensor left(DType::u8, {6, 8, 1});
  for (size_t i = 0; i < left.span<uint8_t>().size(); ++i)
    left.span<uint8_t>()[i] = i % 8 < 4 ? 255 : 0;
  const std::string mask = folder_ / "left.png";
  io::write_png(mask, left);
  const auto plain = pixels(""), all = pixels(flags);
  const auto half = pixels(flags + "--control-mask " + mask);
  EXPECT_NE(half, plain);
  EXPECT_NE(half, all);
  EXPECT_EQ(pixels(flags + "--control-mask 1=" + mask), half);
  const auto style = pixels(flags + "--control-blocks style --control-mask " + mask);
  EXPECT_NE(style, half);
  const std::string first = folder_ / "first.png";
  std::filesystem::rename(png(), first);
  const std::string like = str("generate --device cpu --like ", first, " --out ", png());
  const Output again = run_program(like);
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(again.text.find("warning"), std::string::npos) << again.text;
  const Tensor t = io::read_image(png());
  EXPECT_EQ(std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end()), style);
  EXPECT_EQ(pixels(flags + "--control-blocks up.1=1"), pixels(flags + "--control-blocks style"));
  const std::string two = flags + flags.substr(0, flags.find(" --image-encoder")) + ' ';
  const auto in_order =
      pixels(two + "--control-mask " + mask + " --control-blocks style --control-blocks mid=0.5");
  EXPECT_NE(in_order, half);
  EXPECT_EQ(pixels(two + "--control-blocks 2=mid=0.5 --control-mask 1=" + mask +
                   " --control-blocks 1=style"),
            in_order);
}

// It reads the middle of its image, whatever the flag says.
TEST_F(CliControl, resizing_for_an_image_adapter__is_refused) {
  const std::string adapter = "--control none=" + image() + " --control-model " + image_adapter() +
                              " --image-encoder " + image_encoder() + " --control-resize stretch ";
  EXPECT_EQ(testing::error_line(generate(whole(), "--prompt fox " + adapter)),
            "control: --control-resize has no effect: an IP-Adapter reads the middle of its image");
  pixels(adapter + "--control canny=" + image() + " --control-model " + network());
}

TEST_F(CliControl, masks_and_blocks_that_say_nothing__are_refused) {
  const std::string one = "--control none=" + image() + " --control-model " + image_adapter(),
                    flags = one + " --image-encoder " + image_encoder() + ' ',
                    two = flags + one + ' ', mask = image();
  const auto error = [&](const std::string& more) {
    return testing::error_line(generate(whole(), "--prompt fox " + more));
  };
  EXPECT_EQ(error(flags + "--control-mask 0=" + mask).find("generate: --control-mask is for a "),
            0u);
  EXPECT_EQ(error(flags + "--control-mask 2=" + mask),
            str("generate: --control-mask is for a --control that is not there: number 2 of 1 (got "
                "'2=",
                mask, "')"));
  EXPECT_EQ(error(flags + "--control-blocks style --control-blocks 1=layout"),
            "generate: --control-blocks is given twice for --control number 1 (got '1=layout')");
  EXPECT_EQ(error(flags + "--control-blocks 1="),
            "generate: --control-blocks says nothing (got '1=')");
  EXPECT_EQ(error(flags + "--control-mask 1=no.png"),
            "generate: --control-mask does not exist  1=no.png");
  EXPECT_EQ(
      error(flags + "--control-mask x=" + mask),
      str("generate: --control-mask must be FILE or K=FILE, where K, 1 to 1, is the number of "
          "a --control (got 'x=",
          mask, "')"));
  EXPECT_EQ(error(flags + "--control-blocks ''"),
            "generate: --control-blocks says nothing (got '')");
  EXPECT_NE(error(two + "--control-blocks '' --control-blocks mid")
                .find("--control-blocks: one of several texts is empty (got ';mid')"),
            std::string::npos);
  EXPECT_EQ(error(flags + "--control-blocks up.1=0.5,mid,up_blocks.1=0.8"),
            "control: the block 'up.1' is given two strengths, 0.5 and 0.8 (got "
            "'up.1=0.5,mid,up_blocks.1=0.8')");
  EXPECT_EQ(
      error(flags + "--control-blocks up.0"),
      "control: no block 'up.0' of the denoiser attends to images: it has down.0.0, mid, up.1.0, "
      "up.1.1; style, layout (got 'up.0')");
  EXPECT_EQ(error("--control-blocks style"),
            "generate: --control-blocks has no effect without --control");
}

TEST_F(CliControl, image_adapter_without_its_encoder__is_refused) {
  const std::string map = image(), adapter = " --control-model " + image_adapter();
  const auto refused = [&](const std::string& flags) {
    const Output out = run_program(generate(whole(), "--prompt fox --control none=" + map + flags));
    EXPECT_NE(out.code, 0);
    return out.text;
  };
  EXPECT_NE(refused(adapter).find("--image-encoder FILE or FOLDER names it"), std::string::npos);
  EXPECT_NE(refused(adapter + " --image-encoder " + image_encoder("projection=40"))
                .find("(projection 24 and 40)"),
            std::string::npos);
  EXPECT_NE(refused(adapter + " --image-encoder " + upscaler())
                .find("--image-encoder takes CLIP's vision encoder, and the file is an upscaler"),
            std::string::npos);
  EXPECT_NE(refused(" --control-model " + network() + " --image-encoder " + image_encoder())
                .find("--image-encoder has no effect without an IP-Adapter"),
            std::string::npos);
  EXPECT_NE(refused(" --control-model " + image_adapter("[2,1]"))
                .find("control: network 1, ip_adapter, does not fit the denoiser ldm_unet (latent "
                      "diffusion): it is made for 3 layers that attend to text of 64 channels, and "
                      "the denoiser has 4 that attend to 64  "),
            std::string::npos);
}

TEST_F(CliControl, settings__repeat_the_picture) {
  const std::string map = image();
  const auto want = pixels("--control invert=" + map + ":0.5 --control-model " + network());
  const std::string first = folder_ / "first.png";
  std::filesystem::rename(png(), first);
  const Output out = run_program(str("generate --device cpu --like ", first, " --out ", png()));
  ASSERT_EQ(out.code, 0) << out.text;
  const Tensor t = io::read_image(png());
  EXPECT_EQ(std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end()), want);
}

TEST_F(CliControl, what_does_not_fit__is_refused) {
  const std::string map = image();
  const auto refused = [&](const std::string& flags) {
    const Output out = run_program(generate(whole(), "--prompt fox " + flags));
    EXPECT_NE(out.code, 0);
    return out.text;
  };
  EXPECT_NE(refused("--control none=" + map).find("once for each --control (0 for 1)"),
            std::string::npos);
  EXPECT_NE(refused("--control none=" + map + " --control-model " + network("context=32"))
                .find("control: network 1, control_net, does not fit the denoiser ldm_unet (latent "
                      "diffusion): channels of text (32 and 64)  "),
            std::string::npos);
  EXPECT_NE(refused("--control depth=" + map + " --control-model " + network())
                .find("give the finished map as none=IMAGE"),
            std::string::npos);
  EXPECT_NE(refused("--control none=" + map + " --control-model " + upscaler())
                .find("and the file is an upscaler (esrgan_compact)"),
            std::string::npos);
  EXPECT_NE(refused("--control none=" + map + ":1:0.8:0.2 --control-model " + network())
                .find("start and end of image number 1 must be shares of the steps"),
            std::string::npos);
}

TEST_F(CliControl, upscaler__makes_pictures_larger) {
  const auto size = [&](const std::string& flags) {
    pixels("--upscale " + upscaler() + flags);
    return io::read_image(png()).shape();
  };
  EXPECT_EQ(size(""), (Shape{96, 128, 3}));
  EXPECT_EQ(size(":1.5"), (Shape{72, 96, 3}));
  const auto tiled = pixels("--tiling both --upscale " + upscaler());
  EXPECT_NE(pixels("--tiling both --upscale " + upscaler() + ":1.5"), tiled);
}

TEST_F(CliControl, upscale__makes_a_picture_larger) {
  const std::string out = folder_ / "large.png";
  const Output done =
      run_program(str("upscale ", image(), " --device cpu --model ", upscaler(), " --out ", out));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_EQ(io::read_image(out).shape(), (Shape{80, 120, 3}));
  const Output four = run_program(
      str("upscale ", image(), " --device cpu --scale 4 --model ", upscaler(), " --out ", out));
  ASSERT_EQ(four.code, 0) << four.text;
  EXPECT_EQ(io::read_image(out).shape(), (Shape{160, 240, 3}));
  const auto bytes = [&](const std::string& flags) {
    const Output made = run_program(
        str("upscale ", image(), " --device cpu --model ", upscaler(), " --out ", out, ' ', flags));
    EXPECT_EQ(made.code, 0) << made.text;
    const Tensor t = io::read_image(out);
    return std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end());
  };
  EXPECT_NE(bytes("--tiling both"), bytes(""));
  EXPECT_NE(bytes("--tiling both"), bytes("--tiling x"));
  EXPECT_EQ(testing::error_line(str("upscale ", image(), " --device cpu --tiling z --model ",
                                    upscaler(), " --out ", out)),
            "upscale: unknown --tiling 'z' (known: none, x, y, both)");
  const Output wrong =
      run_program(str("upscale ", image(), " --model ", network(), " --out ", out));
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.text.find("and the file is a control network (control_net)"), std::string::npos);
}

}  // namespace ebb
