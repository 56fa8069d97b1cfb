// `ebb train --train unet,text_encoder`: text encoders as parts of a run, and checkpoints that are
// trained from scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "support/generate_program.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_text : public TrainProgram {
 protected:
  static constexpr const char* both = "--train unet,text_encoder ";
  static Part xl_unet() {
    return {"ldm_unet",
            "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
            "middle_depth=1 output_depths=[0,0,1,1] num_heads=0 num_head_channels=64 context=128 "
            "vector=2816 sizes=6 conv_projection=false}",
            "model.diffusion_model."};
  }
  // A small Stable Diffusion XL. Its second encoder is as OpenCLIP has it, by way of a refiner's
  // file.
  std::string xl() const {
    Part first = text(), second = text(), refiner = xl_unet();
    first.prefix = second.prefix = "conditioner.embedders.0.transformer.";
    second.fields.insert(second.fields.size() - 1, " projection=1280");
    refiner.fields.replace(refiner.fields.find("context=128"), 11, "context=64");
    const std::string other = checkpoint({refiner, second}, "refiner"),
                      open = folder_ / "open.safetensors", file = folder_ / "xl.safetensors";
    EXPECT_EQ(run_program(str("convert ", other, " ", open, " --layout original")).code, 0);
    std::vector<io::NamedTensor> all;
    const auto add = [&](const std::string& from, std::string_view only, std::string_view to) {
      const auto f = io::TensorFile::open(from);
      for (const io::TensorEntry& e : f.entries())
        if (e.name.starts_with(only))
          all.push_back({str(to, e.name.substr(only.size())), f.load(e)});
    };
    add(checkpoint({xl_unet(), first, autoencoder()}, "first"), "", "");
    add(open, "conditioner.embedders.0.model.", "conditioner.embedders.1.model.");
    io::write_safetensors(file, all, {});
    return file;
  }
  // What a picture of the prompt is.
  Tensor picture(const std::string& name, const std::string& from) const {
    const Output out = run_program(
        str("generate --device cpu --model ", from,
            " --prompt fox --steps 1 --size 64 --dtype f32 --seed 3 --out ", png(name)));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(name));
  }
  static bool same(const Tensor& x, const Tensor& y) {
    return std::ranges::equal(x.span<uint8_t>(), y.span<uint8_t>());
  }
  // Tensors of which the numbers differ.
  static std::vector<std::string> changed(const std::string& a, const std::string& b) {
    const auto one = io::TensorFile::open(a), other = io::TensorFile::open(b);
    EXPECT_EQ(one.entries().size(), other.entries().size());
    std::vector<std::string> out;
    for (const io::TensorEntry& e : one.entries()) {
      const Tensor x = one.load(e), y = other.load(other.find(e.name));
      EXPECT_EQ(x.type(), y.type()) << e.name;
      if (std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) != 0) out.push_back(e.name);
    }
    return out;
  }
  static int64_t count(const std::vector<std::string>& names, std::string_view prefix) {
    return std::ranges::count_if(names,
                                 [&](const std::string& n) { return n.starts_with(prefix); });
  }
};

constexpr const char* text_adapter = "--adapter lora --rank 4 --alpha 4 --lr 0.01 ";
constexpr const char* attention = "text_model_encoder_layers_1_self_attn_q_proj";

TEST_F(cli_train_text, adapter_of_both__changes_the_text_states_as_merging_does) {
  const Output out = run_program(
      train("run", str(text_adapter, both, "--text-lr 0.02 --steps 3 --save-dtype f32")));
  ASSERT_EQ(out.code, 0) << out.text;
  const std::string lora = model("run", 3), merged = folder_ / "merged.safetensors";
  const auto file = io::TensorFile::open(lora);
  for (const std::string end : {".lora_down.weight", ".lora_up.weight", ".alpha"})
    EXPECT_TRUE(file.contains(str("lora_te_", attention, end))) << end;
  EXPECT_TRUE(file.contains("lora_te_text_model_encoder_layers_0_mlp_fc1.alpha"));
  EXPECT_EQ(file.metadata().at("ss_text_encoder_lr"), "0.02");
  ASSERT_EQ(run_program(str("convert ", whole(), " ", merged, " --lora ", lora)).code, 0);
  const auto names = changed(whole(), merged);
  EXPECT_EQ(count(names, "cond_stage_model."), 12);
  EXPECT_GT(count(names, "model.diffusion_model."), 4);
  EXPECT_TRUE(same(picture("a", str(whole(), " --lora ", lora)), picture("b", merged)));
}

TEST_F(cli_train_text, adapter_of_the_text_encoder_alone__has_no_other_layers) {
  for (const std::string kind : {"lora", "loha", "lokr"}) {
    const std::string flags = str("--adapter ", kind,
                                  " --rank 4 --alpha 4 --lr 0.05 --train text_encoder --steps 2 "
                                  "--text-targets q_proj,v_proj ");
    const Output out = run_program(train(kind, flags));
    ASSERT_EQ(out.code, 0) << out.text;
    const std::string lora = model(kind, 2);
    const auto file = io::TensorFile::open(lora);
    for (const io::TensorEntry& e : file.entries())
      EXPECT_TRUE(e.name.starts_with("lora_te_text_model_encoder_layers_")) << e.name;
    EXPECT_EQ(file.metadata().at("ss_unet_lr"), "None");
    EXPECT_FALSE(same(picture("a", str(whole(), " --lora ", lora)), picture("b", whole()))) << kind;
  }
}

TEST_F(cli_train_text, adapter_of_both_in_pefts_names__has_what_diffusers_reads) {
  ASSERT_EQ(run_program(train("p", str(text_adapter, both, "--steps 1 --names peft"))).code, 0);
  const auto peft = io::TensorFile::open(model("p", 1));
  EXPECT_TRUE(
      peft.contains("text_encoder.text_model.encoder.layers.1.self_attn.q_proj.lora_A.weight"));
  const std::string facts = peft.metadata().at("lora_adapter_metadata");
  for (const char* part : {"\"text_encoder.r\":4", "\"unet.r\":4",
                           "\"text_encoder.target_modules\":[\"text_model.encoder.layers.0."})
    EXPECT_NE(facts.find(part), std::string::npos) << facts;
}

TEST_F(cli_train_text, run_that_is_stopped_and_goes_on__has_the_same_bits) {
  const std::string flags = str(both, "--shuffle-tags --caption-dropout 0.3 --batch 2 ");
  ASSERT_EQ(run_program(train("once", flags + "--steps 4")).code, 0);
  ASSERT_EQ(run_program(train("twice", flags + "--steps 2 --threads 2")).code, 0);
  const Output on =
      run_program(str("train --resume --steps 4 --threads 1 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(model("once", 4), model("twice", 4));
}

TEST_F(cli_train_text, whole_networks__are_written_with_what_was_trained) {
  const std::string flags = "--steps 1 --lr 0.001 --save-dtype f32 --train ";
  for (const auto& [name, parts] :
       {std::pair{"both", "unet,text_encoder"}, {"texts", "text_encoder"}}) {
    const Output out = run_program(train(name, flags + parts));
    ASSERT_EQ(out.code, 0) << out.text;
    const auto names = changed(whole(), model(name, 1));
    EXPECT_GT(count(names, "cond_stage_model."), 20) << name;
    EXPECT_EQ(count(names, "model.diffusion_model.") > 0, std::string(parts) != "text_encoder");
    EXPECT_EQ(count(names, "first_stage_model."), 0);
    picture("x", model(name, 1));
  }
}

TEST_F(cli_train_text, of_two_encoders__both_are_trained_and_numbered) {
  const std::string file = xl();
  const auto of = [&](const std::string& out, const std::string& flags) {
    const Output done = run_program(train_of(file, out, flags));
    EXPECT_EQ(done.code, 0) << done.text;
    return model(out, 1);
  };
  const auto lora = io::TensorFile::open(of("lora", str(text_adapter, both, "--steps 1")));
  for (const std::string prefix : {"lora_te1_", "lora_te2_"})
    EXPECT_TRUE(lora.contains(str(prefix, "text_model_encoder_layers_0_mlp_fc1.alpha"))) << prefix;
  // the first one's last layer is not read
  EXPECT_FALSE(lora.contains("lora_te1_text_model_encoder_layers_1_mlp_fc1.alpha"));
  EXPECT_TRUE(lora.contains("lora_te2_text_model_encoder_layers_1_mlp_fc1.alpha"));
  // the second one has OpenCLIP's names
  const auto names = changed(file, of("whole", str(both, "--steps 1 --lr 0.001 --save-dtype f32")));
  EXPECT_EQ(count(names, "conditioner.embedders.1.model.text_projection"), 1);
  EXPECT_GT(count(names, "conditioner.embedders.0."), 10);
}

// ---- textual inversion ---------------------------------------------------------------------

// The flags that make pictures with an embedding named zorro.
std::string with_embedding(const std::string& folder, const std::string& file) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(file, folder + "/zorro.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  return str(" --embedding-dir ", folder, " ");
}

constexpr const char* zorro =
    "--train embedding --embedding zorro --vectors 2 --caption-prefix 'a zorro' --save-dtype f32 ";

TEST_F(cli_train_text, embedding__begins_as_its_text_and_learns) {
  ASSERT_EQ(
      run_program(train("first", str(zorro, "--init-text 'red fox' --lr 1e-30 --steps 1"))).code,
      0);
  const auto file = io::TensorFile::open(model("first", 1));
  ASSERT_EQ(file.entries().size(), 1U);
  EXPECT_EQ(file.find("zorro").shape[0], 2);
  const auto of = [&](const std::string& name, const std::string& prompt, const std::string& how) {
    const Output out =
        run_program(str("generate --device cpu --model ", whole(), " --prompt '", prompt,
                        "' --steps 1 --size 64 --dtype f32 --seed 3 --out ", png(name), how));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(name));
  };
  const std::string begun = with_embedding(folder_ / "e0", model("first", 1));
  const Tensor text = of("a", "a red fox, sitting", "");
  EXPECT_TRUE(same(text, of("b", "a zorro, sitting", begun)));
  EXPECT_FALSE(same(text, of("c", "a zorro, sitting", "")));
  ASSERT_EQ(run_program(train("run", str(zorro, "--init-text 'red fox' --lr 0.1 --steps 4"))).code,
            0);
  const std::string trained = with_embedding(folder_ / "e1", model("run", 4));
  EXPECT_FALSE(same(text, of("d", "a zorro, sitting", trained)));
}

TEST_F(cli_train_text, embedding_that_is_stopped_and_goes_on__has_the_same_bits) {
  expect_same_when_resumed(str(zorro, "--caption-dropout 0.3 --batch 2"), 2, 4);
}

TEST_F(cli_train_text, embedding_without_a_name_in_captions__is_an_error) {
  const auto line = [&](const std::string& flags) {
    return error_line(train("run", str("--steps 1 ", flags)));
  };
  const auto says = [&](const std::string& flags, const std::string& words) {
    const std::string is = line(flags);
    EXPECT_NE(is.find(words), std::string::npos) << is;
  };
  says("--train embedding --embedding zorro", "no caption of 3 has the name 'zorro'");
  says("--train embedding", "must be a name without spaces and commas");
  says("--train embedding,unet --embedding x", "is trained alone (--train embedding,unet)");
  says("--train embedding --embedding fox --adapter lora", "without an adapter (--adapter lora)");
  says("--train embedding --embedding fox --vectors 76", "from 1 to 75");
  says("--train embedding --embedding fox --init-text 'a Fox'", "must not have the name");
  says("--vectors 2", "are of an embedding that is trained");
}

// ---- prior preservation --------------------------------------------------------------------

TEST_F(cli_train_text, prior__weighs_its_pictures) {
  const std::string folder = folder_ / "prior";
  std::filesystem::create_directories(folder);
  Tensor grey(DType::u8, {64, 64, 3});
  std::ranges::fill(grey.span<uint8_t>(), uint8_t{128});
  io::write_png(folder + "/dog.png", grey);
  put_file(folder + "/dog.txt", "a dog");
  const auto run = [&](const std::string& name, const std::string& flags,
                       const std::string& more = "") {
    const std::string all = str(both, "--batch 2 --steps 2 --lr 0.001 --save-dtype f32 ", flags);
    const std::string pictures = str("'", data(), more, "'");
    const Output out = run_program(train_from(whole(), pictures, name, all));
    EXPECT_EQ(out.code, 0) << out.text;
    return out.text;
  };
  const std::string prior = str("--prior ", folder, ":3 ");
  const std::string said = run("prior", prior + "--prior-weight 0.5");
  EXPECT_NE(said.find("3 pictures to learn and 3 of the prior, with the weight 0.5"), said.npos)
      << said;
  // of weight 1 they are pictures as others
  run("one", prior);
  run("mixed", "", str(";", folder, ":3"));
  expect_same_tensors(model("one", 2), model("mixed", 2));
  EXPECT_FALSE(changed(model("one", 2), model("prior", 2)).empty());
  EXPECT_NE(error_line(train("x", str("--steps 1 ", prior, "--caption-prefix 'a rex'")))
                .find("must come without caption_prefix"),
            std::string::npos);
  EXPECT_NE(error_line(train("x", "--steps 1 --prior-weight 2")).find("and there are none"),
            std::string::npos);
}

TEST_F(cli_train_text, settings_without_effect__are_refused) {
  const auto line = [&](const std::string& flags) { return error_line(train("run", flags)); };
  EXPECT_NE(line("--steps 1 --train unet,texts").find("unknown part 'texts'"), std::string::npos);
  EXPECT_NE(line("--steps 1 --train unet,unet").find("named twice"), std::string::npos);
  EXPECT_NE(line("--steps 1 --text-lr 1e-5").find("are of text encoders that are trained"),
            std::string::npos);
  EXPECT_NE(line("--steps 1 --adapter lora --train text_encoder --targets to_q")
                .find("targets are of a U-Net that is trained"),
            std::string::npos);
}

}  // namespace
}  // namespace ebb::testing
