// One model in every container and layout: the same bits. Conversions between them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "pipeline/checkpoint_layouts.h"
#include "pipeline/convert.h"
#include "support/files.h"
#include "support/generate_program.h"
#include "support/source_folder.h"
#include "support/torch_file.h"

namespace ebb::testing::checkpoint_containers_test {
namespace {

using Tensors = std::vector<io::NamedTensor>;

Tensors tensors_of(const std::string& file) {
  const auto open = io::TensorFile::open(file);
  Tensors out;
  for (const io::TensorEntry& e : open.entries()) out.push_back({e.name, open.load(e)});
  return out;
}

std::map<std::string, std::string> bytes_by_name(const std::string& file) {
  std::map<std::string, std::string> out;
  for (const auto& [name, t] : tensors_of(file))
    out[name] = str(t.type()) +
                std::string(static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes()));
  return out;
}

class Containers : public GenerateProgram {
 protected:
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

TEST_F(Containers, one_model_in_each__makes_the_same_latents) {
  const std::string file = whole();
  const std::string expected = latents(file);
  const Tensors all = tensors_of(file);
  put_file(folder_ / "zip.ckpt", torch_text(all, "state_dict"));
  put_file(folder_ / "legacy.ckpt", torch_text(all, "state_dict", true));
  put_file(folder_ / "plain.pt", torch_text(all));
  for (const char* name : {"zip.ckpt", "legacy.ckpt", "plain.pt"})
    EXPECT_EQ(latents(folder_ / name), expected) << name;
  const std::string diffusers = folder_ / "diffusers";
  convert(file + " " + diffusers);
  EXPECT_EQ(latents(diffusers), expected);
  // as older folders have it: pickles, and a variant
  for (const char* part :
       {"unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"}) {
    const std::string here = str(diffusers, '/', part);
    put_file(here + ".fp16.bin", torch_text(tensors_of(here + ".safetensors")));
    std::filesystem::remove(here + ".safetensors");
  }
  std::filesystem::rename(folder_ / "diffusers/text_encoder/model.fp16.bin",
                          folder_ / "diffusers/text_encoder/pytorch_model.fp16.bin");
  EXPECT_EQ(latents(diffusers), expected);
  EXPECT_EQ(latents(diffusers, "--variant fp16"), expected);
  EXPECT_EQ(
      error_line(str("generate --model ", diffusers, " --prompt x --variant ema")).substr(0, 35),
      "folder: has no variant ema (fp16)  ");
}

// The flag is for every folder that is named, whichever component it has.
TEST_F(Containers, variant__is_that_of_every_folder) {
  const std::string file = whole(), folder = folder_ / "diffusers", vae = folder + "/vae";
  const std::string expected = latents(file);
  convert(file + " " + folder);
  const std::string weights = vae + "/diffusion_pytorch_model";
  for (const char* variant : {".fp16", ".ema"})
    std::filesystem::copy_file(weights + ".safetensors", str(weights, variant, ".safetensors"));
  std::filesystem::remove(weights + ".safetensors");
  const std::string several = "folder: has several variants; --variant names one (ema, fp16)  ";
  EXPECT_EQ(error_line(str("generate --prompt x --model ", file, " --vae ", vae)), several + vae);
  EXPECT_EQ(latents(file, str("--variant ema --vae ", vae)), expected);
  EXPECT_EQ(latents(folder, "--variant fp16"), expected);  // the others have none
  EXPECT_EQ(error_line("info " + vae), several + vae);
  EXPECT_EQ(run_program(str("info --variant fp16 ", vae)).code, 0);
  EXPECT_EQ(run_program(str("info --variant fp16 ", folder)).code, 0);
  EXPECT_EQ(error_line(str("info --variant fp16 ", file)),
            "info: --variant is of folders of diffusers (fp16)  " + file);
  EXPECT_EQ(error_line(str("generate --prompt x --variant fp16 --model ", file)),
            "generate: --variant is of folders of diffusers (fp16)  " + file);
}

TEST_F(Containers, original_to_diffusers_and_back__is_the_same_file) {
  const std::string file = whole(), folder = folder_ / "diffusers",
                    back = folder_ / "back.safetensors";
  convert(file + " " + folder + " --layout diffusers");
  convert(folder + " " + back);
  EXPECT_EQ(bytes_by_name(back), bytes_by_name(file));
  const auto index = nlohmann::json::parse(file_bytes(folder + "/model_index.json"));
  EXPECT_EQ(index["_class_name"], "StableDiffusionPipeline");
  EXPECT_TRUE(std::filesystem::exists(folder + "/tokenizer/merges.txt"));
}

TEST_F(Containers, xl__keeps_its_second_encoder_and_its_markers) {
  Part net = unet(), first = text(), second = text();
  net.fields =
      "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
      "middle_depth=1 output_depths=[0,0,1,1] num_heads=0 num_head_channels=64 "
      "context=128 conv_projection=false vector=2816 sizes=6}";
  first.prefix = "conditioner.embedders.0.transformer.";
  second.fields = "{width=64 layers=2 heads=1 hidden=64 projection=64}";
  second.prefix = "conditioner.embedders.0.model.";
  const std::string hf = checkpoint({net, first, autoencoder()}, "hf");
  // the second as OpenCLIP has it: by way of a refiner's file
  Part refiner = net;
  refiner.fields.replace(refiner.fields.find("context=128"), 11, "context=64");
  second.prefix = "conditioner.embedders.0.transformer.";
  const std::string other = checkpoint({refiner, second}, "refiner"),
                    open = folder_ / "open.safetensors";
  convert(other + " " + open + " --layout original");
  Tensors all = tensors_of(hf);
  size_t packed = 0;
  for (io::NamedTensor& t : tensors_of(open)) {
    const std::string from = "conditioner.embedders.0.model.";
    if (!t.name.starts_with(from)) continue;
    packed += t.name.ends_with("attn.in_proj_weight");
    all.push_back({"conditioner.embedders.1.model." + t.name.substr(from.size()), t.tensor});
  }
  EXPECT_EQ(packed, 2u);
  all.push_back({"v_pred", Tensor(DType::f32, {0})});
  all.push_back({"ztsnr", Tensor(DType::f32, {0})});
  const std::string file = folder_ / "xl.safetensors", folder = folder_ / "xl",
                    back = folder_ / "xl_back.safetensors";
  io::write_safetensors(file, all);
  convert(file + " " + folder);
  const auto scheduler =
      nlohmann::json::parse(file_bytes(folder + "/scheduler/scheduler_config.json"));
  EXPECT_EQ(scheduler["prediction_type"], "v_prediction");
  EXPECT_EQ(scheduler["rescale_betas_zero_snr"], true);
  EXPECT_TRUE(std::filesystem::exists(folder + "/text_encoder_2/model.safetensors"));
  convert(folder + " " + back);
  EXPECT_EQ(bytes_by_name(back), bytes_by_name(file));
}

TEST_F(Containers, scheduler_of_a_folder__is_copied_or_what_is_lost_is_said) {
  const std::string file = whole(), folder = folder_ / "lcm", other = folder_ / "other",
                    back = folder_ / "back.safetensors";
  convert(file + " " + folder);
  const std::string scheduler = R"({"_class_name": "LCMScheduler", "beta_schedule": "linear",
    "beta_start": 0.0001, "beta_end": 0.02, "prediction_type": "sample", "steps_offset": 1,
    "original_inference_steps": 40, "timestep_spacing": "trailing"})";
  put_file(folder + "/scheduler/scheduler_config.json", scheduler);
  convert(str(folder, " ", other, " --layout diffusers"));
  EXPECT_EQ(file_bytes(other + "/scheduler/scheduler_config.json"), scheduler);
  EXPECT_EQ(nlohmann::json::parse(file_bytes(other + "/model_index.json"))["scheduler"][1],
            "LCMScheduler");
  const std::string said = run_program(str("convert ", folder, " ", back)).text;
  EXPECT_NE(said.find("these flags do: --precond x0 --betas linear\n"), std::string::npos) << said;
  EXPECT_NE(said.find("the folder's is LCMScheduler; to ebb generate these flags say so: "
                      "--sampler lcm --schedule "),
            std::string::npos)
      << said;
  EXPECT_FALSE(io::TensorFile::open(back).metadata().contains("modelspec.prediction_type"));
}

TEST_F(Containers, dtype__rounds_floats_and_nothing_else) {
  Tensor ids(DType::i64, {2}), wide(DType::f32, {2});
  ids.span<int64_t>()[1] = 77;
  wide.span<float>()[0] = 1.0009765625f;
  wide.span<float>()[1] = -3;
  const std::string in = folder_ / "in.pt", out = folder_ / "out.safetensors";
  const Tensors tensors{{"ids", ids}, {"w", wide}};
  put_file(in, torch_text(tensors));
  convert(str(in, " ", out, " --dtype f16"));
  const auto file = io::TensorFile::open(out);
  EXPECT_EQ(file.find("ids").file_dtype, "I64");
  EXPECT_EQ(file.find("w").file_dtype, "F16");
  const Tensor w = file.load("w").to(DType::f32);
  EXPECT_EQ(w.span<float>()[0], 1.0009765625f);
  wide.span<float>()[0] = 1e6f;
  put_file(in, torch_text(tensors));
  const std::string before = file_bytes(out);
  EXPECT_EQ(error_line(str("convert ", in, " ", out, " --dtype f16 --overwrite")),
            "convert: w has numbers beyond f16 (element 0 is 1e+06)");
  EXPECT_EQ(file_bytes(out), before);
}

TEST_F(Containers, averages__take_the_weights_place) {
  Tensors all = tensors_of(whole());
  const std::string start = "model.diffusion_model.";
  Tensors averages;
  for (const io::NamedTensor& t : all) {
    if (!t.name.starts_with(start)) continue;
    std::string name = t.name.substr(6);
    std::erase(name, '.');
    averages.push_back({"model_ema." + name, t.tensor});
  }
  const std::string expected = latents(whole());
  // the weights themselves are others
  for (io::NamedTensor& t : all)
    if (t.name.starts_with(start) && t.name.ends_with("bias")) t.tensor = Tensor(t.tensor.type());
  all.insert(all.end(), averages.begin(), averages.end());
  put_file(folder_ / "both.ckpt", torch_text(all, "state_dict"));
  EXPECT_NE(latents(folder_ / "both.ckpt"), expected);
  EXPECT_EQ(latents(folder_ / "both.ckpt", "--ema"), expected);
  EXPECT_EQ(error_line(str("generate --prompt x --ema --model ", whole())).substr(0, 27),
            "averages: the file has none");
}

TEST_F(Containers, interrupted_conversion__leaves_nothing) {
  Tensors tensors;
  for (int i = 0; i < 100; ++i)
    tensors.push_back({str("t", i), Tensor(DType::f32, {int64_t{1} << 18})});
  const std::string in = folder_ / "in.safetensors", out = folder_ / "out.safetensors";
  io::write_safetensors(in, tensors);
  // once the file is begun, under a temporary name
  const Output done = run_program(str("--version; { '", program_path(), "' convert ", in, " ", out,
                                      " --dtype f16 & ", "while kill -0 $!; do for f in ", out,
                                      ".tmp-*; do if [ -s \"$f\" ]; ",
                                      "then kill -TERM $!; break 2; fi; done; done; wait $!; }"));
  EXPECT_EQ(done.code, 143) << done.text;
  EXPECT_NE(done.text.find("convert: interrupted by signal 15; nothing was written to " + out),
            std::string::npos)
      << done.text;
  EXPECT_EQ(folder_.files(), 1u);
}

TEST_F(Containers, mistakes__change_nothing) {
  const std::string file = whole();
  EXPECT_EQ(error_line(str("convert ", file, " ", file)),
            "convert: must not overwrite its input  " + file);
  const std::string before = file_bytes(file);
  std::filesystem::create_symlink(file, folder_ / "link.safetensors");
  EXPECT_EQ(error_line(str("convert ", file, " ", folder_ / "link.safetensors")),
            str("convert: must not overwrite its input  ", folder_ / "link.safetensors"));
  EXPECT_EQ(error_line(str("convert ", file, " ", folder_.path(), " --layout diffusers")),
            "convert: OUT must be a new or empty folder  " + folder_.path());
  EXPECT_EQ(
      error_line(str("convert ", file, " ", folder_ / "x.ckpt", " --layout same")),
      str("convert: writes safetensors: OUT must end with .safetensors  ", folder_ / "x.ckpt"));
  EXPECT_EQ(error_line(str("convert nowhere.pt ", folder_ / "x.safetensors")),
            "convert: does not exist  nowhere.pt");
  EXPECT_EQ(file_bytes(file), before);
  const size_t files = folder_.files();
  Tensors some{{"a", Tensor(DType::f32, {1})}};
  io::write_safetensors(folder_ / "other.safetensors", some);
  EXPECT_NE(error_line(str("convert ", folder_ / "other.safetensors", " ", folder_ / "y"))
                .find("so it has one layout only"),
            std::string::npos);
  EXPECT_EQ(folder_.files(), files + 1);
}

// ---- info ----------------------------------------------------------------------------------

TEST_F(Containers, info__names_family_prediction_and_what_is_missing) {
  Part net = unet();
  net.fields =
      "{model_channels=64 channel_mult=[1,2] num_res_blocks=1 input_depths=[1,0] "
      "middle_depth=1 output_depths=[0,0,1,1] num_heads=8 num_head_channels=0 context=768}";
  Tensors all = tensors_of(checkpoint({net, autoencoder()}));
  put_file(folder_ / "sd.ckpt", torch_text(all, "state_dict"));
  const std::string text = run_program(str("info ", folder_ / "sd.ckpt")).text;
  for (const char* line : {"family      Stable Diffusion 1", "predicts    noise (eps)",
                           "missing     text encoder CLIP-L", "dtype       F32",
                           "component   autoencoder autoencoder_kl, under first_stage_model."})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  const std::string embedding =
      run_program("info " + source_folder() + "/tests/golden/torch/embedding_a1111.pt").text;
  EXPECT_NE(embedding.find("embedding (textual inversion): 2 vectors for CLIP-L"),
            std::string::npos)
      << embedding;
  const std::string folder = folder_ / "diffusers";
  convert(whole() + " " + folder);
  const std::string said = run_program("info " + folder).text;
  for (const char* line :
       {"pipeline    StableDiffusionPipeline",
        "component   denoiser ldm_unet, unet/diffusion_pytorch_model.safetensors",
        "family      latent diffusion with text of 64 channels"})
    EXPECT_NE(said.find(line), std::string::npos) << line << "\n" << said;
}

// ---- scheduler -----------------------------------------------------------------------------

TEST_F(Containers, scheduler_of_a_folder__decides_prediction_and_spacing) {
  const std::string file = whole(), folder = folder_ / "diffusers";
  convert(file + " " + folder);
  const std::string config = folder + "/scheduler/scheduler_config.json";
  const auto with = [&](const char* key, const nlohmann::json& value) {
    auto j = nlohmann::json::parse(file_bytes(config));
    j[key] = value;
    put_file(config, j.dump());
  };
  const std::string euler = "--dialect diffusers --sampler euler --seed 3 ";
  EXPECT_EQ(latents(folder, euler),
            latents(file, euler + "--schedule leading --schedule-options offset=1"));
  with("timestep_spacing", "trailing");
  EXPECT_EQ(latents(folder, euler), latents(file, euler + "--schedule trailing"));
  EXPECT_EQ(latents(folder, euler + "--schedule leading"),
            latents(file, euler + "--schedule leading"));
  with("prediction_type", "v_prediction");
  EXPECT_EQ(latents(folder, euler), latents(file, euler + "--schedule trailing --precond v"));
  with("prediction_type", "flow");
  EXPECT_NE(error_line(str("generate --prompt x --model ", folder))
                .find("scheduler: prediction_type must be epsilon, v_prediction or sample"),
            std::string::npos);
  put_file(config, "{}");
  EXPECT_EQ(error_line(str("generate --prompt x --model ", folder)),
            "scheduler: the file says nothing (an empty object)  " + config);
  std::filesystem::remove(config);
  EXPECT_EQ(
      error_line(str("generate --prompt x --model ", folder)),
      "folder: lacks scheduler/scheduler_config.json, which its model_index.json names  " + folder);
  put_file(config, R"({"prediction_type": "epsilon"})");
  std::filesystem::remove_all(folder + "/vae");
  EXPECT_EQ(
      error_line(str("generate --prompt x --model ", folder)),
      "generate: the folder lacks the weights of vae, which its model_index.json names  " + folder);
}

}  // namespace ebb::testing::checkpoint_containers_test
