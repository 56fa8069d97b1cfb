// `ebb convert --lora`: what is merged makes the pictures of `ebb generate --lora`.
#include "support/files.h"
#include "support/generate_program.h"

namespace ebb::testing {
namespace {

class CliConvertLora : public GenerateProgram {
 protected:
  // Of layers of both networks, in kohya's names.
  std::string lora() const {
    struct Layer {
      const char* name;
      int64_t in, out;
    };
    std::vector<io::NamedTensor> tensors;
    for (const Layer& l :
         {Layer{"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn2_to_k", 64, 64},
          Layer{"lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q", 64, 64},
          Layer{"lora_te_text_model_encoder_layers_0_self_attn_q_proj", 64, 64}}) {
      const auto add = [&](const std::string& end, const Shape& shape) {
        tensors.push_back({l.name + end, nn::hashed_file_tensor(l.name + end, shape)});
      };
      add(".lora_down.weight", {4, l.in});
      add(".lora_up.weight", {l.out, 4});
    }
    const std::string file = folder_ / "ink.safetensors";
    io::write_safetensors(file, tensors);
    return file;
  }
  std::string latents(const std::string& model, const std::string& flags = "") const {
    const std::string out = folder_ / "x.npy";
    const Output done =
        run_program(str("generate --device cpu --dtype f32 --model ", model,
                        " --prompt fox --steps 2 --size 64 --overwrite --out ", out, " ", flags));
    EXPECT_EQ(done.code, 0) << done.text;
    return file_bytes(out);
  }
  void convert(const std::string& flags) const {
    const Output done = run_program("convert " + flags);
    ASSERT_EQ(done.code, 0) << done.text;
  }
};

}  // namespace

TEST_F(CliConvertLora, merged__is_the_picture_of_the_lora_in_every_layout) {
  const std::string model = whole(), with = str("--lora ", lora(), ":0.7:-0.4");
  const std::string expected = latents(model, with);
  EXPECT_NE(expected, latents(model));
  const std::string same = folder_ / "same.safetensors", back = folder_ / "back.safetensors",
                    diffusers = folder_ / "diffusers";
  convert(str(model, " ", same, " ", with));
  EXPECT_EQ(latents(same), expected);
  convert(str(model, " ", diffusers, " ", with));
  EXPECT_EQ(latents(diffusers), expected);
  convert(str(diffusers, " ", back));
  EXPECT_EQ(latents(back), expected);
}

TEST_F(CliConvertLora, lora_that_fits_nothing__is_refused_and_nothing_is_written) {
  const std::string model = whole(), out = folder_ / "x.safetensors",
                    other = folder_ / "o.safetensors";
  io::write_safetensors(other,
                        std::vector<io::NamedTensor>{
                            {"lora_unet_nothing.lora_down.weight", Tensor(DType::f32, {4, 8})},
                            {"lora_unet_nothing.lora_up.weight", Tensor(DType::f32, {8, 4})}});
  EXPECT_NE(run_program(str("convert ", model, " ", out, " --lora ", other)).code, 0);
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace ebb::testing
