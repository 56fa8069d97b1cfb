// `ebb generate` from a picture: --init, --mask, --outpaint.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/image.h"
#include "support/files.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::put_file;
using testing::run_program;

class CliGenerateModes : public testing::GenerateProgram {
 protected:
  // A picture of 64x48: a slope.
  std::string picture() const {
    Tensor t(DType::u8, {48, 64, 3});
    for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
      t.span<uint8_t>()[i] = static_cast<uint8_t>(i / 3 % 64 * 3 + 20);
    io::write_png(folder_ / "init.png", t);
    return folder_ / "init.png";
  }
  // White in its right half.
  std::string mask() const {
    Tensor t(DType::u8, {48, 64, 1});
    for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
      t.span<uint8_t>()[i] = i % 64 < 32 ? 0 : 255;
    io::write_png(folder_ / "mask.png", t);
    return folder_ / "mask.png";
  }
  Tensor made(const std::string& flags) const {
    const Output out = run_program(generate(whole(), "--prompt fox --seed 1 " + flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png());
  }
  // The mean difference of two pictures in columns [first, last).
  static double difference(const Tensor& a, const Tensor& b, size_t first, size_t last) {
    double sum = 0;
    const size_t width = static_cast<size_t>(a.shape()[1]) * 3;
    for (size_t i = 0; i < a.span<uint8_t>().size(); ++i)
      if (i % width / 3 >= first && i % width / 3 < last)
        sum += std::abs(int{a.span<uint8_t>()[i]} - int{b.span<uint8_t>()[i]});
    return sum;
  }
};

TEST_F(CliGenerateModes, picture_to_start_from__matters_more_with_less_strength) {
  const std::string init = "--init " + picture();
  const Tensor noise = made(""), all = made(init + " --strength 1"),
               half = made(init + " --strength 0.5");
  EXPECT_EQ(all.shape(), (Shape{48, 64, 3}));
  EXPECT_GT(difference(noise, half, 0, 64), 0);
  EXPECT_GT(difference(all, half, 0, 64), 0);
}

TEST_F(CliGenerateModes, editing__is_guided_by_the_picture_and_repeated_by_like) {
  Part network = unet();
  network.fields.insert(network.fields.size() - 1, " extra_channels=4");
  const std::string model = checkpoint({network, text(), autoencoder()}, "edit");
  const auto run = [&](const std::string& flags) {
    return run_program(generate(model, "--prompt fox --seed 1 " + flags));
  };
  const auto edited = [&](const std::string& flags) {
    const Output out = run("--init " + picture() + flags);
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png());
  };
  const Tensor plain = edited(""), more = edited(" --image-guidance 3");
  EXPECT_GT(difference(plain, more, 0, 64), 0);
  const std::string first = folder_ / "first.png";
  std::filesystem::rename(png(), first);
  ASSERT_EQ(run_program(str("generate --device cpu --like ", first, " --out ", png())).code, 0);
  EXPECT_EQ(difference(io::read_image(png()), more, 0, 64), 0);
  EXPECT_NE(run("").text.find("the model edits a picture: --init FILE names it"),
            std::string::npos);
  EXPECT_NE(run("--init " + picture() + " --strength 0.5").text.find("--strength (0.5) and"),
            std::string::npos);
}

TEST_F(CliGenerateModes, mask__leaves_pixels_outside_as_they_were) {
  const std::string flags = "--init " + picture() + " --mask " + mask() + " --mask-blur 0";
  const Tensor before = io::read_image(picture());
  for (const char* more :
       {"", " --dialect a1111", " --dialect diffusers", " --dialect comfy",
        " --masked-content noise", " --masked-content nothing", " --masked-content fill",
        " --only-masked --mask-padding 4", " --sampler ddim", " --sampler euler_ancestral"}) {
    const Tensor after = made(flags + more);
    ASSERT_EQ(after.shape(), before.shape()) << more;
    EXPECT_EQ(difference(before, after, 0, 32), 0) << more;
    EXPECT_GT(difference(before, after, 32, 64), 0) << more;
  }
  const Tensor other = made(flags + " --mask-invert");
  EXPECT_EQ(difference(before, other, 32, 64), 0);
  EXPECT_GT(difference(before, other, 0, 32), 0);
}

TEST_F(CliGenerateModes, outpaint__adds_pixels_around_the_picture) {
  const Output out =
      run_program(str("generate --device cpu --model ", whole(), " --steps 2 --out ", png(),
                      " --prompt fox --init ", picture(), " --outpaint 16,0,0,8 --mask-blur 0"));
  ASSERT_EQ(out.code, 0) << out.text;
  const Tensor before = io::read_image(picture()), after = io::read_image(png());
  ASSERT_EQ(after.shape(), (Shape{56, 80, 3}));
  for (size_t y = 0; y < 48; ++y)
    for (size_t i = 0; i < 64 * 3; ++i)
      ASSERT_EQ(after.span<uint8_t>()[y * 80 * 3 + 16 * 3 + i],
                before.span<uint8_t>()[y * 64 * 3 + i]);
}

TEST_F(CliGenerateModes, network_that_was_trained_to_inpaint__gets_mask_and_picture) {
  Part wide = unet();
  wide.fields.insert(1, "extra_channels=5 ");
  const std::string model = checkpoint({wide, text(), autoencoder()}, "inpaint");
  const Tensor before = io::read_image(picture());
  const Output out = run_program(
      generate(model, "--prompt fox --mask-blur 0 --init " + picture() + " --mask " + mask()));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(difference(before, io::read_image(png()), 0, 32), 0);
  // as A1111: without a mask all is generated, not nothing
  Tensor white(DType::u8, {48, 64, 1});
  std::ranges::fill(white.span<uint8_t>(), uint8_t{255});
  io::write_png(folder_ / "white.png", white);
  std::vector<Tensor> all;
  for (const std::string& more :
       {std::string(), " --mask-blur 0 --mask " + (folder_ / "white.png")}) {
    const Output made =
        run_program(generate(model, "--prompt fox --strength 1 --init " + picture() + more));
    ASSERT_EQ(made.code, 0) << made.text;
    all.push_back(io::read_image(png()));
  }
  EXPECT_EQ(difference(all[0], all[1], 0, 64), 0);
  EXPECT_EQ(run_program(generate(model, "--prompt fox --hires 1.5")).code, 0);
  EXPECT_EQ(error_line(str("generate --device cpu --model ", checkpoint({wide, text()}, "bare"),
                           " --prompt fox --out ", folder_ / "x.npy")),
            "generate: a network that was trained to inpaint takes the latents of a picture, and "
            "the checkpoint has no autoencoder that makes them; --vae FILE names one");
}

TEST_F(CliGenerateModes, network_of_a_depth_map__is_refused) {
  Part deep = unet();
  deep.fields.insert(1, "extra_channels=1 ");
  const std::string model = checkpoint({deep, text(), autoencoder()}, "depth");
  for (const std::string& more : {std::string(), " --init " + picture()})
    EXPECT_EQ(error_line(generate(model, "--prompt fox" + more))
                  .find("generate: the network takes a depth map beside its latents"),
              0u);
}

// Two files that differ in nothing else.
TEST_F(CliGenerateModes, how_latents_are_normalised__is_as_the_file_or_the_folder_says) {
  const std::string file = whole(), folder = folder_ / "diffusers";
  const auto picture_of = [&](const std::string& model) {
    EXPECT_EQ(run_program(generate(model, "--prompt fox --seed 1 --guidance 1")).code, 0);
    return io::read_image(png());
  };
  ASSERT_EQ(run_program("convert " + file + " " + folder).code, 0);
  const Tensor plain = picture_of(file);
  EXPECT_EQ(difference(plain, picture_of(folder), 0, 64), 0);
  const auto config = [&](const std::string& from, const std::string& to) {
    std::string text = file_bytes(folder + "/vae/config.json");
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    put_file(folder + "/vae/config.json", text.replace(at, from.size(), to));
  };
  config("\"scaling_factor\": 0.18215", "\"scaling_factor\": 0.5");
  const Tensor scaled = picture_of(folder);
  EXPECT_GT(difference(plain, scaled, 0, 64), 0);
  config("\"scaling_factor\": 0.5",
         "\"latents_mean\": [1, 2, 3, 4], \"latents_std\": [5, 6, 7, 8], \"scaling_factor\": 0.5");
  EXPECT_GT(difference(scaled, picture_of(folder), 0, 64), 0);
}

TEST_F(CliGenerateModes, second_pass__makes_a_larger_picture) {
  EXPECT_EQ(made("--hires 1.5").shape(), (Shape{72, 96, 3}));
  EXPECT_EQ(made("--hires 2:lanczos:2:0.5 --dialect a1111").shape(), (Shape{96, 128, 3}));
}

TEST_F(CliGenerateModes, refiner__makes_the_last_steps) {
  const std::string euler = "--sampler euler ";
  const Tensor alone = made(euler), two = made(euler + "--refiner " + whole() + ":0.5");
  // By itself it goes on as it would have, to rounding: a run that is handed over has its sampler
  // on the host, not in the denoiser's plan.
  EXPECT_LE(difference(alone, two, 0, 64), 1);
}

TEST_F(CliGenerateModes, files_that_are_not_there__are_named_with_their_flags) {
  const std::string model = whole();
  const auto error = [&](const std::string& flags) {
    return error_line(generate(model, "--prompt fox " + flags));
  };
  EXPECT_EQ(error("--lora no.safetensors:0.8"),
            "generate: --lora does not exist  no.safetensors:0.8");
  EXPECT_EQ(error("--upscale no.pth:2"), "generate: --upscale does not exist  no.pth:2");
  EXPECT_EQ(error("--hires 2:no.pth").find("generate: --hires: no file and no upscaler 'no.pth' ("),
            0u);
  EXPECT_EQ(error("--hires 2:latnt"),
            "generate: --hires: no file and no upscaler 'latnt' (did you mean 'latent'?)");
  EXPECT_EQ(error("--control none=no.png:0.5 --control-model " + model),
            "generate: --control does not exist  no.png");
  EXPECT_EQ(error("--control none=" + picture() + " --control-model no.safetensors"),
            "generate: --control-model does not exist  no.safetensors");
  EXPECT_EQ(error("--vae no.pt"), "generate: --vae does not exist  no.pt");
  EXPECT_EQ(error("--embedding-dir no"), "generate: --embedding-dir does not exist  no");
  EXPECT_EQ(error("--preview terminal --preview-decoder no.pt"),
            "generate: --preview-decoder does not exist  no.pt");
}

TEST_F(CliGenerateModes, words__may_have_any_case_and_switches_are_on_or_off) {
  const std::string model = whole();
  const Output out =
      run_program(generate(model,
                           "--prompt fox --tiling X --sampler AUTO --json=TRUE --fit Crop "
                           "--init " +
                               picture()));
  EXPECT_EQ(out.code, 0) << out.text;
  const auto error = [&](const std::string& flags) {
    return error_line(generate(model, "--prompt fox " + flags));
  };
  EXPECT_EQ(error("--tiling z"), "generate: unknown --tiling 'z' (known: none, x, y, both)");
  EXPECT_EQ(error("--json=3"),
            "generate: --json is a switch: its value must be true or false (got '--json=3')");
  EXPECT_EQ(error("--no-json=3"),
            "generate: --no-json is a switch: its value must be true or false (got '--no-json=3')");
}

TEST_F(CliGenerateModes, interrupt_before_the_first_picture__leaves_no_folder) {
  const std::string folder = folder_ / "pictures/of/today";
  // 10000 steps take much longer than 3 seconds.
  const Output out =
      run_program(str("--version; exec timeout --preserve-status -s INT 3 '",
                      testing::program_path(), "' generate --device cpu --model ", whole(),
                      " --prompt fox --steps 10000 --size 64x48 --n 2 --out ", folder));
  EXPECT_EQ(out.code, 130) << out.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "pictures"));
}

TEST_F(CliGenerateModes, mistakes__are_named) {
  const std::string model = whole(), init = " --init " + picture();
  const auto error = [&](const std::string& flags) {
    return error_line(generate(model, "--prompt fox " + flags));
  };
  EXPECT_EQ(error("--strength 0.5"), "generate: --strength has no effect without --init");
  EXPECT_EQ(error("--mask " + mask()), "generate: --mask has no effect without --init");
  EXPECT_EQ(error("--mask-blur 3" + init), "generate: --mask-blur has no effect without --mask");
  EXPECT_EQ(error("--fit crop --only-masked --mask " + mask() + init),
            "generate: --fit has no effect with --only-masked");
  EXPECT_EQ(error("--exact-steps" + init),
            "generate: --exact-steps is A1111's option and has no effect in dialect ebb");
  EXPECT_EQ(error("--only-masked --mask-padding 9223372036854775807 --mask " + mask() + init),
            "generate: --mask-padding must be 0 to 16384 (got 9223372036854775807)");
  EXPECT_EQ(error("--n 2 --first-image 9223372036854775807"),
            "generate: --first-image must be 0 to 2^62 (got 9223372036854775807)");
  EXPECT_EQ(error("--control-mode bogus"),
            "generate: --control-mode has no effect without --control");
  EXPECT_EQ(error("--control-resize stretch"),
            "generate: --control-resize has no effect without --control");
  EXPECT_EQ(error("--format jpg"),
            "generate: --format has no effect with --out " + png() + ", whose ending says it");
  EXPECT_EQ(error("--quality 7"), "generate: --quality has no effect on PNG files");
  EXPECT_EQ(error("--init nowhere.png"), "generate: --init does not exist  nowhere.png");
  EXPECT_EQ(error("--strength 1.5" + init), "generate: --strength must lie in [0, 1] (got 1.5)");
  EXPECT_EQ(error("--outpaint 8,0,0,0" + init),
            "generate: --size and --outpaint both say the size of the picture");
  EXPECT_EQ(error("--mask-invert --mask " + mask() + init + " --masked-content grey"),
            "generate: unknown --masked-content 'grey' (known: auto, fill, original, noise, "
            "nothing)");
  EXPECT_EQ(error("--control-resize fold"),
            "generate: unknown --control-resize 'fold' (known: crop, stretch, fill)");
  EXPECT_EQ(error("--fit fold"),
            "generate: unknown --fit 'fold' (known: stretch, crop, fill, latent)");
  const std::string help = run_program("generate --help-all").text;
  for (const char* values : {"png, jpg or webp", "none, x, y or both"})
    EXPECT_NE(help.find(values), help.npos) << values;
  EXPECT_EQ(error("--hires 0.5"),
            "generate: --hires: the scale must be above 1 and at most 8 (got 0.5)");
  EXPECT_EQ(error("--hires 2:latent:3:2"),
            "generate: --hires: the strength must lie in [0, 1] (got 2)");
  EXPECT_EQ(error("--hires 2 --mask " + mask() + init),
            "generate: --hires with --mask is not there yet");
  EXPECT_EQ(error("--refiner nowhere.safetensors"),
            "generate: --refiner does not exist  nowhere.safetensors");
  EXPECT_EQ(error("--refiner x:2"),
            "generate: --refiner must be FILE or FILE:share, with a share from 0 to 1 (got 'x:2')");
  EXPECT_FALSE(std::filesystem::exists(png()));
}

}  // namespace
}  // namespace ebb
