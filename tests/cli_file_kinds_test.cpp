// Every kind of file for every flag that takes one: it is used, or refused by an error that names
// the flag, the file, what the file is and which flag takes it.
#include <gtest/gtest.h>

#include <set>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::run_program;

class CliFileKinds : public testing::GenerateProgram {
 protected:
  std::string tensors(const std::string& name, const std::vector<io::NamedTensor>& all) const {
    const std::string file = folder_ / (name + ".safetensors");
    io::write_safetensors(file, all, {});
    return file;
  }
  struct Kind {
    std::string name, file, purpose;
  };
  static std::string taken(const std::string& what, const std::string& flags) {
    return str(what, ", which ebb generate takes as ", flags, " beside a checkpoint (--model)");
  }
  std::vector<Kind> networks() const {
    const auto alone = [](Part p) { return Part{p.model, p.fields, ""}; };
    const Part control = {
        "control_net",
        "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] middle_depth=1 "
        "num_heads=0 num_head_channels=64 context=64 conv_projection=false "
        "hint_channels=[8,8,8,8]}",
        ""};
    const std::string checkpoints =
        "is a checkpoint, which ebb generate takes as --model (it has: ";
    const auto controls = [](const std::string& model) {
      return taken("is a control network (" + model + ')', "--control-model, with --control,");
    };
    return {
        {"checkpoint", whole(), checkpoints + "denoiser (ldm_unet), text encoder (clip_text), "},
        {"denoiser", checkpoint({alone(unet())}, "unet"), checkpoints + "denoiser (ldm_unet))"},
        {"tiny", checkpoint({{"tiny", "{}", ""}}, "tiny"),
         "is a denoiser (tiny) that reads no text, which ebb sample and ebb eval take"},
        {"vae", checkpoint({alone(autoencoder())}, "vae"),
         taken("is an autoencoder (autoencoder_kl)", "--vae")},
        {"taesd", checkpoint({{"taesd", "", ""}}, "taesd"),
         taken("is an autoencoder (taesd)", "--vae")},
        {"text", checkpoint({alone(text())}, "text"),
         taken("is a text encoder (clip_text)", "--text-encoder")},
        {"control", checkpoint({control}, "control"), controls("control_net")},
        {"t2i", checkpoint({{"t2i_adapter", "{channels=[64,128]}", ""}}, "t2i"),
         controls("t2i_adapter")},
        {"ip", image_adapter(), controls("ip_adapter")},
        {"vision", vision(), taken("is an image encoder (clip_vision)", "--image-encoder")},
        {"upscaler", checkpoint({{"esrgan_compact", "{width=8 layers=1 scale=2}", ""}}, "up"),
         taken("is an upscaler (esrgan_compact)", "--upscale (and ebb upscale as --model)")}};
  }
  std::vector<Kind> others() const {
    const std::string stem = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_v";
    return {{"lora",
             tensors("lora", {{stem + ".lora_down.weight", Tensor(DType::f32, {1, 64})},
                              {stem + ".lora_up.weight", Tensor(DType::f32, {64, 1})}}),
             taken("is a LoRA", "--lora")},
            {"embedding", tensors("words", {{"emb_params", Tensor(DType::f32, {2, 768})}}),
             taken("is an embedding (textual inversion): 2 vectors for CLIP-L",
                   "a file of the folder --embedding-dir, by its name in the prompt,")},
            {"unknown",
             tensors("unknown", {{"a", Tensor(DType::f32, {3, 4})},
                                 {"b", Tensor(DType::f32, {})},
                                 {"c", Tensor(DType::f32, {1})},
                                 {"d", Tensor(DType::f32, {1})}}),
             "has 4 tensors of no network that ebb knows (a[3,4], b[], c[1], ...); ebb sample "
             "--model NAME takes it for one of adm, "}};
  }
  std::string image_adapter() const {
    return checkpoint(
        {{"ip_adapter", "{features=24 tokens=4 context=64 widths=[64,128] runs=[3,1]}", ""}}, "ip");
  }
  std::string vision() const {
    return checkpoint(
        {{"clip_vision",
          "{width=32 layers=2 heads=16 hidden=37 image_size=28 patch=7 projection=24}", ""}},
        "vision");
  }

  // A command with FILE in its words, how its errors begin, which kinds it uses, and to which it
  // says something of its own.
  struct Taker {
    std::string words, error;
    std::set<std::string> uses, own = {};
  };
  std::vector<Taker> takers() const {
    const std::string map = picture(), lora = others()[0].file;
    const auto with = [model = whole(), this](const std::string& flags) {
      return generate(model, "--prompt fox " + flags);
    };
    const auto takes = [](const std::string& flag, const std::string& what) {
      return str(flag, " takes ", what, ", and the file ");
    };
    const std::string a_vae = "an autoencoder (VAE)", a_lora = "a LoRA or one of its relatives",
                      an_upscaler = "an upscaler (ESRGAN, Real-ESRGAN)";
    const std::set<std::string> autoencoders = {"checkpoint", "vae", "taesd"};
    return {
        {generate("FILE", "--prompt fox"), "", {"checkpoint"}, {"denoiser"}},
        {with("--vae FILE"), takes("generate: --vae", a_vae), autoencoders},
        {with("--preview " + png("p") + " --preview-decoder FILE"),
         takes("generate: --preview-decoder", a_vae), autoencoders},
        {with("--text-encoder FILE"),
         takes("generate: --text-encoder", "a text encoder"),
         {"checkpoint", "text"}},
        {with("--image-encoder " + vision() + " --control none=" + map + " --control-model " +
              image_adapter() + " --control none=" + map + " --control-model FILE"),
         takes("generate: --control-model", "a control network, T2I-Adapter or IP-Adapter"),
         {"control", "t2i", "ip"}},
        {with("--control none=" + map + " --control-model " + image_adapter() +
              " --image-encoder FILE"),
         takes("generate: --image-encoder", "CLIP's vision encoder"),
         {"vision"}},
        {with("--upscale FILE"), takes("generate: --upscale", an_upscaler), {"upscaler"}},
        {with("--hires 1.5:FILE"), takes("generate: --hires", an_upscaler), {"upscaler"}},
        {str("upscale ", map, " --device cpu --model FILE --out ", png("large")),
         takes("upscale: --model", an_upscaler),
         {"upscaler"}},
        {with("--refiner FILE:0.5"), "", {"checkpoint", "denoiser"}},
        {with("--lora FILE"), takes("lora: --lora", a_lora), {"lora"}},
        {with("--refiner " + whole() + ":0.5 --refiner-lora FILE"),
         takes("lora: --refiner-lora", a_lora),
         {"lora"}},
        {str("convert ", whole(), " ", folder_ / "lora_in.safetensors", " --overwrite --lora FILE"),
         takes("lora: --lora", a_lora),
         {"lora"}},
        {str("convert FILE ", folder_ / "on.safetensors", " --overwrite --lora ", lora),
         "convert: --lora changes U-Nets and text encoders, and the file ",
         {"checkpoint", "denoiser"},
         {"text", "tiny"}},
        {str("convert FILE ", folder_ / "NAME"),
         "convert: there is no U-Net, text encoder or autoencoder of Stable Diffusion, so it has "
         "one layout only (OUT must be a .safetensors file, and --layout same): the file ",
         {"checkpoint", "denoiser", "vae", "text"}},
        {str("sample FILE --device cpu --n 1 --steps 2 --out ", png("s")),
         "model: the file ",
         {"tiny"},
         {"checkpoint", "denoiser"}}};
  }
  std::string picture() const {
    io::write_png(png("map"), Tensor(DType::u8, {48, 64, 3}));
    return png("map");
  }
  // With the file and its kind in the place of FILE and NAME.
  static std::string of(const Taker& t, const Kind& k) {
    std::string words = t.words;
    for (const auto& [name, text] : {std::pair{"FILE", k.file}, {"NAME", k.name}})
      if (const size_t at = words.find(name); at != words.npos) words.replace(at, 4, text);
    return words;
  }
};

TEST_F(CliFileKinds, each__is_used_or_refused_with_what_it_is) {
  std::vector<Kind> kinds = networks();
  for (Kind& k : others()) kinds.push_back(std::move(k));
  for (const Taker& t : takers())
    for (const Kind& k : kinds) {
      const std::string words = of(t, k);
      if (t.own.contains(k.name)) continue;
      if (t.uses.contains(k.name)) {
        const Output done = run_program(words);
        EXPECT_EQ(done.code, 0) << words << '\n' << done.text;
        continue;
      }
      const std::string error = error_line(words);
      EXPECT_EQ(error.find(t.error), 0u) << words << '\n' << error;
      EXPECT_NE(error.find("the file " + k.purpose), error.npos) << words << '\n' << error;
      EXPECT_TRUE(error.ends_with("  " + k.file)) << words << '\n' << error;
    }
}

// They keep their tensors' names in another container and dtype.
TEST_F(CliFileKinds, files_without_layouts__are_converted_under_the_same_names) {
  for (const Kind& k : others()) {
    const std::string out = folder_ / "f16.safetensors";
    const Output done = run_program(str("convert ", k.file, " ", out, " --overwrite --dtype f16"));
    ASSERT_EQ(done.code, 0) << done.text;
    const auto before = io::TensorFile::open(k.file), after = io::TensorFile::open(out);
    ASSERT_EQ(after.entries().size(), before.entries().size());
    for (const io::TensorEntry& e : before.entries()) {
      EXPECT_EQ(after.find(e.name).shape, e.shape);
      EXPECT_EQ(after.find(e.name).dtype, DType::f16);
    }
  }
}

}  // namespace
}  // namespace ebb
