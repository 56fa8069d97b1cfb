// `ebb generate`: previews, an upscaler network in a second pass, LoRAs on the refiner, tiling, and
// what A1111's text of a picture says of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/image.h"
#include "io/picture_file.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

class CliGenerateExtras : public testing::GenerateProgram {
 protected:
  void SetUp() override {
    GenerateProgram::SetUp();
    if (!IsSkipped()) model_ = whole();
  }
  std::string command(const std::string& flags) const {
    return generate(model_, "--prompt fox --seed 1 " + flags);
  }
  std::vector<uint8_t> made(const std::string& flags) const {
    const Output out = run_program(command(flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return pixels(png());
  }
  static std::vector<uint8_t> pixels(const std::string& file) {
    const Tensor t = io::read_image(file);
    return {t.span<uint8_t>().begin(), t.span<uint8_t>().end()};
  }
  std::string error(const std::string& flags) const { return error_line(command(flags)); }
  std::string parameters() const { return io::read_picture_text(png()).at("parameters"); }
  std::string picture(const std::string& name) const {
    Tensor t(DType::u8, {48, 64, 3});
    for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
      t.span<uint8_t>()[i] = static_cast<uint8_t>(i / 3 % 64 * 3 + 20);
    io::write_png(png(name), t);
    return png(name);
  }
  // On one matrix of the U-Net.
  std::string lora(float value = 0.3f) const {
    constexpr int64_t channels = 64;
    const auto filled = [value](Shape shape) {
      Tensor t(DType::f32, std::move(shape));
      std::ranges::fill(t.span<float>(), value);
      return t;
    };
    const std::string stem = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_v";
    const std::vector<io::NamedTensor> tensors = {
        {stem + ".lora_down.weight", filled({1, channels})},
        {stem + ".lora_up.weight", filled({channels, 1})}};
    const std::string file = folder_ / "style.safetensors";
    io::write_safetensors(file, tensors, {});
    return file;
  }
  std::string model_;
};

TEST_F(CliGenerateExtras, preview__is_written_as_the_run_goes_on_and_changes_nothing) {
  const auto plain = made("");
  const std::string file = png("preview");
  EXPECT_EQ(made("--preview " + file + ":2"), plain);
  EXPECT_EQ(io::read_image(file).shape(), (Shape{6, 8, 3}));
  std::filesystem::remove(file);
  EXPECT_EQ(made("--preview " + file + ":3"), plain);  // of two steps none
  const std::string rule = "warning: --preview has no effect: the run has fewer than 3 steps\n";
  EXPECT_NE(run_program(command("--preview " + file + ":3")).text.find(rule), std::string::npos);
  EXPECT_EQ(run_program(command("--preview terminal:2")).text.find("no effect"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(file));
  const std::string small = checkpoint({{"taesd", "", ""}}, "taesd");
  EXPECT_EQ(made("--preview " + file + " --preview-decoder " + small), plain);
  EXPECT_EQ(io::read_image(file).shape(), (Shape{48, 64, 3}));
  const Output shown = run_program(command("--preview terminal:2"));
  EXPECT_NE(shown.text.find("\u2580"), std::string::npos);
}

TEST_F(CliGenerateExtras, preview_mistakes__are_errors) {
  EXPECT_EQ(error("--preview x.gif"),
            "generate: --preview must be FILE[:steps] with a .png, .jpg or .webp file, or "
            "terminal[:steps] (got 'x.gif')");
  EXPECT_EQ(error("--preview x.png:0"),
            "generate: --preview: a picture every 0 steps: it must be 1 to 99999 (got 'x.png:0')");
  EXPECT_EQ(error("--preview-decoder x"),
            "generate: --preview-decoder has no effect without --preview");
}

TEST_F(CliGenerateExtras, second_pass_by_an_upscaler_network__has_its_size_and_its_own_picture) {
  const std::string net =
      checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=2}", ""}}, "upscaler");
  const auto lanczos = made("--hires 1.5:lanczos:2:0.5");
  const auto network = made("--hires 1.5:" + net + ":2:0.5");
  EXPECT_EQ(io::read_image(png()).shape(), (Shape{72, 96, 3}));
  EXPECT_NE(network, lanczos);
  EXPECT_NE(parameters().find("Denoising strength: 0.5, Hires upscale: 1.5, Hires steps: 2, Hires "
                              "upscaler: upscaler"),
            std::string::npos)
      << parameters();
  for (const char* name : {"nowhere.pth", "nowhere"})
    EXPECT_EQ(error(str("--hires 1.5:", name))
                  .find(str("generate: --hires: no file and no upscaler '", name, "'")),
              0u);
  EXPECT_NE(error("--hires 1.5:" + model_).find("--hires takes an upscaler"), std::string::npos);
  std::filesystem::remove(net);
  EXPECT_EQ(error_line(str("generate --device cpu --like ", png(), " --out ", png("again"))),
            str("generate: --hires of the picture does not exist here; --hires names another (",
                net, ")  ", png()));
}

TEST_F(CliGenerateExtras, lora_on_the_refiner__changes_its_steps_only) {
  const std::string refiner = "--sampler euler --refiner " + model_ + ":0.5 ";
  const std::string style = lora(1.0f);  // more than the roundings of the pixels, in bf16 too
  const auto plain = made(refiner);
  EXPECT_NE(parameters().find("Refiner: sd, Refiner switch at: 0.5"), std::string::npos);
  EXPECT_EQ(made(refiner + "--refiner-lora " + style + ":0"), plain);
  const auto on_refiner = made(refiner + "--refiner-lora " + style);
  EXPECT_NE(made(refiner + "--refiner-lora " + style + " --refiner-lora " + style), on_refiner);
  const auto on_both = made(refiner + "--lora " + style + " --refiner-lora " + style);
  // the file is named once, and by its hash
  const std::string text = parameters();
  EXPECT_NE(text.find("Refiner switch at: 0.5, Refiner loras: \"<lora:style:1>\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Lora hashes: \"style: "), std::string::npos) << text;
  EXPECT_EQ(text.find("style: ", text.find("Lora hashes: \"style: ") + 20), std::string::npos);
  EXPECT_NE(on_refiner, plain);
  EXPECT_NE(on_refiner, made(refiner + "--lora " + style));
  EXPECT_NE(on_both, on_refiner);
  EXPECT_EQ(error("--refiner-lora " + style),
            "generate: --refiner-lora has no effect without --refiner FILE");
}

// Its picture is made again by what the text says; another file of that name is warned of.
TEST_F(CliGenerateExtras, lora_on_the_refiner__is_followed_and_checked_by_like) {
  const std::string file = lora();
  const auto before =
      made("--sampler euler --refiner " + model_ + ":0.5 --refiner-lora " + file + ":0.7");
  const std::string settings = io::read_picture_text(png()).at("ebb");
  EXPECT_NE(settings.find("\"refiner_lora\":\""), std::string::npos) << settings;
  const size_t hashes = settings.find("\"hashes\":");
  ASSERT_NE(hashes, std::string::npos) << settings;
  EXPECT_NE(settings.find("\"refiner_lora\":\"", hashes), std::string::npos) << settings;
  const std::string like =
      str("generate --device cpu --like ", png(), " --out ", png("again"), ' ');
  const Output same = run_program(like);
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_EQ(same.text.find("warning"), std::string::npos) << same.text;
  EXPECT_EQ(pixels(png("again")), before);
  lora(0.4f);
  const Output other = run_program(like);
  EXPECT_EQ(other.code, 0) << other.text;
  EXPECT_NE(other.text.find("--refiner-lora is another file than the one that made the picture"),
            std::string::npos)
      << other.text;
  std::filesystem::remove(file);
  EXPECT_NE(error_line(like).find("--refiner-lora of the picture does not exist here"),
            std::string::npos)
      << error_line(like);
}

TEST_F(CliGenerateExtras, tiling__is_along_the_axes_that_are_named) {
  const auto none = made(""), x = made("--tiling x"), both = made("--tiling both");
  EXPECT_NE(parameters().find("Tiling: True"), std::string::npos);
  EXPECT_NE(x, none);
  EXPECT_NE(x, both);
  EXPECT_EQ(made("--tiling none"), none);
  EXPECT_EQ(error("--tiling z"), "generate: unknown --tiling 'z' (known: none, x, y, both)");
}

TEST_F(CliGenerateExtras, lora__is_in_the_text_by_its_tag_and_hash) {
  made("--lora " + lora() + ":0.5:0.25");
  EXPECT_EQ(parameters().find("fox <lora:style:0.25:0.5>\n"), 0u) << parameters();
  const std::string text = parameters(), key = "Lora hashes: \"style: ";
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef", at + key.size()), at + key.size() + 12);
}

TEST_F(CliGenerateExtras, lora_of_a_picture_that_is_gone__is_named_by_its_number) {
  const std::string second = folder_ / "second.safetensors", first = png("first");
  std::filesystem::copy_file(lora(), second);
  made(str("--lora ", lora(), " --lora ", second));
  std::filesystem::rename(png(), first);
  std::filesystem::remove(second);
  EXPECT_EQ(
      error_line(str("generate --device cpu --like ", first, " --out ", png())),
      str("generate: --lora number 2 of the picture does not exist here; --lora names others, "
          "all of them anew (",
          second, ")  ", first));
}

TEST_F(CliGenerateExtras, strengths_beyond_sense__are_refused_where_they_are_named) {
  const std::string file = lora(), rule = ": the strength must be a number from -10000 to 10000 ";
  EXPECT_EQ(error("--lora " + file + ":1e99"),
            str("lora: --lora", rule, "(got 1e+99)  ", file, ":1e99"));
  EXPECT_EQ(error("--lora " + file + ":1:-10001"),
            str("lora: --lora", rule, "(got -10001)  ", file, ":1:-10001"));
  EXPECT_EQ(error("--lora " + file + ":1:lbw=1,1,1,1,1,1,1,1,1,1,1,1e5"),
            "lora: block weights must be numbers from -10000 to 10000 (found '1e5')  "
            "lbw=1,1,1,1,1,1,1,1,1,1,1,1e5");
  const std::string wrong = error_line(str(generate(model_, "--prompt '<lora:style:1e99>'"),
                                           " --lora-dir ", file.substr(0, file.rfind('/'))));
  EXPECT_NE(wrong.find("prompt: a strength must be a number from -10000 to 10000"), wrong.npos)
      << wrong;
}

TEST_F(CliGenerateExtras, lora_that_makes_weights_too_large__is_named_with_the_layer) {
  const std::string huge = lora(1e18f);
  const std::string wrong = error("--lora " + huge + ":1000");
  EXPECT_NE(wrong.find("not finite"), wrong.npos) << wrong;
  EXPECT_NE(wrong.find(".attn1.to_v.weight"), wrong.npos) << wrong;
  EXPECT_TRUE(wrong.ends_with("  " + huge + ":1000")) << wrong;
  const std::string lost = error("--lora " + huge + ":100");
  EXPECT_NE(lost.find("not finite"), lost.npos) << lost;
  EXPECT_TRUE(lost.ends_with("; smaller strengths of LoRAs may mend that  " + huge + ":100"))
      << lost;
}

// What the text says, with the same inputs, makes the same picture; what it cannot name is asked
// for.
TEST_F(CliGenerateExtras, text_of_the_web_ui__repeats_masks_and_passes_bit_for_bit) {
  const std::string init = picture("init"), inputs = "--init " + init + " --mask " + init;
  const auto like = [&](const std::string& flags) {
    const Tensor plain = io::read_image(png());
    io::write_png(png("theirs"), plain, {{"parameters", parameters()}});
    return str("generate --device cpu --model ", model_, " --like ", png("theirs"), " --out ",
               png("again"), ' ', flags);
  };
  const auto again = [&](const std::string& flags) {
    const Output out = run_program(like(flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return pixels(png("again"));
  };
  const auto masked =
      made("--dialect a1111 --sampler 'Euler a' " + inputs +
           " --strength 0.6 --mask-blur 2 --mask-invert --masked-content noise --only-masked "
           "--mask-padding 5");
  EXPECT_NE(parameters().find(
                "Denoising strength: 0.6, Mask blur: 2, Masked content: latent noise, Mask mode: "
                "Inpaint not masked, Inpaint area: Only masked, Masked area padding: 5"),
            std::string::npos)
      << parameters();
  EXPECT_EQ(again(inputs), masked);
  EXPECT_NE(error_line(like("")).find("made from another one; --init FILE names it"),
            std::string::npos);
  const auto large = made("--dialect a1111 --hires 1.5:latent-bicubic:2:0.5 --tiling both");
  EXPECT_EQ(again(""), large);
}

}  // namespace
}  // namespace ebb
