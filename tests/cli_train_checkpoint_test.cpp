// `ebb train --model CHECKPOINT`: adapters and whole U-Nets of a small checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "adapters/trainable.h"
#include "io/safetensors.h"
#include "support/train_program.h"

namespace ebb::testing {
namespace {

class cli_train_checkpoint : public TrainProgram {};

constexpr const char* adapter = "--adapter lora --rank 4 --alpha 4 --lr 0.01 --flip ";

TEST_F(cli_train_checkpoint, adapter_that_is_stopped_and_goes_on__has_the_same_bits) {
  const std::string flags = str(adapter, "--shuffle-tags --caption-dropout 0.3 --batch 2 ");
  const Output once = run_program(train("once", flags + "--steps 4"));
  ASSERT_EQ(once.code, 0) << once.text;
  ASSERT_EQ(run_program(train("twice", flags + "--steps 2 --threads 2")).code, 0);
  const Output on =
      run_program(str("train --resume --steps 4 --threads 1 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(model("once", 4), model("twice", 4));
  expect_same_tensors(folder_ / "once/state-00000004.safetensors",
                      folder_ / "twice/state-00000004.safetensors");
}

TEST_F(cli_train_checkpoint, run_with_lists_of_captions_and_prefetched_batches__goes_on) {
  const std::string folder = data();
  std::string lines;
  for (int i = 0; i < 3; ++i) {
    std::filesystem::remove(str(folder, "/", i, ".txt"));
    lines += str(R"({"file_name": ")", i, R"(.png", "text": ["fox )", i, R"(", "snow", "a fox"]})",
                 "\n");
  }
  put_file(folder + "/metadata.jsonl", lines);
  const std::string flags = str(adapter, "--caption-dropout 0.2 --batch 2 ");
  const auto line = [&](const std::string& out, const std::string& more) {
    return train_from(whole(), folder, out, flags + more);
  };
  const std::string why = "batches are made between steps, not during them: ";
  const Output once = run_program(line("once", "--steps 5"));
  ASSERT_EQ(once.code, 0) << once.text;
  EXPECT_EQ(once.text.find(why), std::string::npos) << once.text;
  ASSERT_EQ(run_program(line("twice", "--steps 2")).code, 0);
  const Output on = run_program(str("train --resume --steps 5 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  // without memory for what encoders made, nothing is prefetched
  const Output plain = run_program(line("plain", "--steps 5 --cache 0"));
  ASSERT_EQ(plain.code, 0) << plain.text;
  EXPECT_NE(plain.text.find(why + "latents and text states do not fit"), std::string::npos)
      << plain.text;
  for (const std::string file : {"state-00000005.safetensors", "model-00000005.safetensors"})
    for (const std::string run : {"twice/", "plain/"})
      expect_same_tensors(folder_ / ("once/" + file), folder_ / (run + file));
}

TEST_F(cli_train_checkpoint, adapter_in_a_picture__is_that_of_merged_weights) {
  ASSERT_EQ(run_program(train("run", str(adapter, "--steps 3 --save-dtype f32"))).code, 0);
  const std::string merged = folder_ / "merged.safetensors", lora = model("run", 3);
  ASSERT_EQ(run_program(str("convert ", whole(), " ", merged, " --lora ", lora)).code, 0);
  const std::string flags = " --prompt fox --steps 2 --size 64 --dtype f32 --seed 3 --out ";
  const auto picture = [&](const std::string& name, const std::string& from) {
    const Output out = run_program(str("generate --device cpu --model ", from, flags, png(name)));
    EXPECT_EQ(out.code, 0) << out.text;
    return io::read_image(png(name));
  };
  const Tensor a = picture("a", str(whole(), " --lora ", lora)), b = picture("b", merged);
  const Tensor plain = picture("c", whole());
  const auto same = [](const Tensor& x, const Tensor& y) {
    return std::ranges::equal(x.span<uint8_t>(), y.span<uint8_t>());
  };
  EXPECT_TRUE(same(a, b));
  EXPECT_FALSE(same(a, plain));
}

TEST_F(cli_train_checkpoint, adapters_file__has_kohyas_or_pefts_names) {
  ASSERT_EQ(run_program(train("k", str(adapter, "--steps 1"))).code, 0);
  const auto kohya = io::TensorFile::open(model("k", 1));
  const std::string layer = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q";
  for (const char* end : {".lora_down.weight", ".lora_up.weight", ".alpha"})
    EXPECT_TRUE(kohya.contains(str("lora_unet_", layer, end))) << end;
  EXPECT_EQ(kohya.metadata().at("ss_network_dim"), "4");
  EXPECT_EQ(kohya.metadata().at("ss_num_train_images"), "3");
  ASSERT_EQ(
      run_program(train("p", str(adapter, "--steps 1 --names peft --targets to_q,to_v"))).code, 0);
  const auto peft = io::TensorFile::open(model("p", 1));
  EXPECT_TRUE(peft.contains(
      "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.lora_A.weight"));
  const std::string facts = peft.metadata().at("lora_adapter_metadata");
  EXPECT_NE(facts.find("\"unet.target_modules\":[\"down_blocks.0.attentions.0.transformer_blocks.0."
                       "attn1.to_q\""),
            std::string::npos)
      << facts;
  EXPECT_EQ(facts.find("to_k"), std::string::npos);
  EXPECT_FALSE(peft.contains(
      "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_k.lora_A.weight"));
}

TEST_F(cli_train_checkpoint, whole_network__is_written_with_all_components) {
  const Output out =
      run_program(train("run",
                        "--steps 2 --accumulation 2 --batch 2 --noise-offset 0.1 --save-dtype f32 "
                        "--weighting min_snr"));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto before = io::TensorFile::open(whole()), after = io::TensorFile::open(model("run", 2));
  EXPECT_EQ(before.entries().size(), after.entries().size());
  int64_t changed = 0;
  for (const io::TensorEntry& e : before.entries()) {
    const Tensor x = before.load(e), y = after.load(after.find(e.name));
    const bool same = std::ranges::equal(x.span<float>(), y.span<float>());
    changed += !same;
    EXPECT_TRUE(same || e.name.starts_with("model.diffusion_model.")) << e.name;
  }
  EXPECT_GT(changed, 50);
  const Output picture = run_program(str("generate --device cpu --model ", model("run", 2),
                                         " --prompt fox --steps 1 --size 64 --out ", png()));
  EXPECT_EQ(picture.code, 0) << picture.text;
}

TEST_F(cli_train_checkpoint, mistakes__are_one_error_and_leave_nothing) {
  const auto line = [&](const std::string& flags) { return error_line(train("run", flags)); };
  EXPECT_NE(line("--steps 1 --adapter lorra").find("unknown kind 'lorra'"), std::string::npos);
  EXPECT_NE(line("--steps 1 --adapter lora --targets none").find("no layer of the U-Net"),
            std::string::npos);
  EXPECT_NE(line("--steps 1 --rank 4").find("are an adapter's"), std::string::npos);
  EXPECT_NE(line("--steps 1 --vae x").find("--vae is for adapters"), std::string::npos);
  EXPECT_NE(line("--steps 1 --text-encoder x").find("--text-encoder is for adapters"),
            std::string::npos);
  for (const std::string& kind : adapters::trainable_kinds())
    for (const int rank : {0, -3})
      EXPECT_NE(line(str("--steps 1 --adapter ", kind, " --rank ", rank))
                    .find(str("rank: must be from 1 to 4096 (", rank, ")")),
                std::string::npos);
  EXPECT_NE(line("--steps 1 --adapter lora --alpha 1e39").find("finite in f32 (1e+39)"),
            std::string::npos);
  EXPECT_NE(
      line("--steps 1 --precond flow").find("must be eps, v or what the checkpoint has (eps)"),
      std::string::npos);
  EXPECT_NE(line("--steps 1 --size 64").find("unknown argument '--size'"), std::string::npos);
  EXPECT_NE(line("--steps 1 --keep-tags 2").find("is for shuffle_tags"), std::string::npos);
  EXPECT_NE(line("--steps 1 --adapter lora --factor 4").find("factor: is not of adapters of the"),
            std::string::npos);
  EXPECT_NE(line("--steps 1 --no-buckets --no-upscale").find("no effect with --no-buckets"),
            std::string::npos);
  const std::string lost = error_line(str("train --device cpu --model ", whole(),
                                          " --data nowhere --steps 1 --out ", folder_ / "run"));
  EXPECT_NE(lost.find("data: no such file"), std::string::npos) << lost;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(cli_train_checkpoint, errors_of_the_checkpoint__are_of_training) {
  const std::string file = checkpoint({unet(), autoencoder()}, "speechless");
  const std::string error = error_line(str("train --device cpu --model ", file, " --data ", data(),
                                           " --steps 1 --out ", folder_ / "run"));
  EXPECT_EQ(error.find("generate"), std::string::npos) << error;
  EXPECT_NE(error.find("train: the model reads"), std::string::npos) << error;
}

TEST_F(cli_train_checkpoint, run_that_goes_on_with_other_batches_or_captions__is_refused) {
  ASSERT_EQ(run_program(train("run", str(adapter, "--steps 1"))).code, 0);
  const std::string resume = str("train --resume --steps 2 --out ", folder_ / "run", " ");
  for (const auto& [flag, text] :
       {std::pair{"--batch 2", "the run's batch is 1 and stays (--batch 2)"},
        {"--resolution 96", "the run's resolution is 64 and stays"},
        {"--caption-dropout 0.5", "the run's caption_dropout is 0 and stays"},
        {"--caption-prefix x", "the run's caption_prefix is empty and stays"},
        {"--shuffle-tags", "the run's shuffle_tags is false and stays"},
        {"--no-flip", "the run's flip is true and stays"},
        {"--seed 6", "the run's seed is 5 and stays"}})
    EXPECT_NE(error_line(resume + flag).find(text), std::string::npos) << error_line(resume + flag);
}

TEST_F(cli_train_checkpoint, adapter_whose_newest_file_was_moved__goes_on_from_its_state) {
  const std::string flags = str(adapter, "--checkpoint-every 1 ");
  ASSERT_EQ(run_program(train("once", flags + "--steps 3")).code, 0);
  ASSERT_EQ(run_program(train("twice", flags + "--steps 2")).code, 0);
  std::filesystem::rename(model("twice", 2), folder_ / "mine.safetensors");
  const std::string resume = str("train --resume --steps 3 --out ", folder_ / "twice");
  const Output on = run_program(resume);
  ASSERT_EQ(on.code, 0) << on.text;
  EXPECT_NE(on.text.find("resumes at step 2"), std::string::npos) << on.text;
  expect_same_tensors(model("once", 3), model("twice", 3));
  for (const int step : {1, 2, 3})
    std::filesystem::remove(folder_ / str("twice/state-0000000", step, ".safetensors"));
  const std::string error = error_line(resume);
  EXPECT_NE(error.find("training state is missing"), std::string::npos) << error;
  EXPECT_NE(error.find("state-00000003.safetensors"), std::string::npos) << error;
}

TEST_F(cli_train_checkpoint, run_that_goes_on_with_another_adapter__is_refused) {
  ASSERT_EQ(run_program(train("run", str(adapter, "--steps 1"))).code, 0);
  const std::string resume = str("train --resume --steps 2 --out ", folder_ / "run", " ");
  EXPECT_NE(error_line(resume + "--rank 8").find("the run's rank is 4 and stays"),
            std::string::npos);
  EXPECT_NE(error_line(resume + "--precond v").find("the run's diffusion stays"),
            std::string::npos);
}

TEST_F(cli_train_checkpoint, run_that_goes_on__keeps_flags_that_have_default_values) {
  const std::string flags = str(adapter, "--betas linear ");  // the checkpoint's: scaled_linear
  ASSERT_EQ(run_program(train("once", flags + "--steps 2")).code, 0);
  ASSERT_EQ(run_program(train("twice", flags + "--steps 1")).code, 0);
  const Output on = run_program(str("train --resume --steps 2 --out ", folder_ / "twice"));
  ASSERT_EQ(on.code, 0) << on.text;
  expect_same_tensors(model("once", 2), model("twice", 2));
  EXPECT_EQ(io::TensorFile::open(folder_ / "once/state-00000002.safetensors")
                .metadata()
                .at("ebb.diffusion_config"),
            io::TensorFile::open(folder_ / "twice/state-00000002.safetensors")
                .metadata()
                .at("ebb.diffusion_config"));
}

TEST_F(cli_train_checkpoint, run_that_goes_on_with_other_data_or_encoders__is_refused) {
  ASSERT_EQ(run_program(train("run", str(adapter, "--steps 1"))).code, 0);
  const std::string resume = str("train --resume --steps 2 --out ", folder_ / "run", " ");
  const std::string other =
      checkpoint({{"autoencoder_kl", "{channels=32 channel_mult=[1,1,1,1] res_blocks=2}",
                   "first_stage_model."}},
                 "vae");
  EXPECT_NE(error_line(resume + "--vae " + other)
                .find("the autoencoder or a text encoder is not the one that the run began with"),
            std::string::npos);
  put_file(folder_ / "data/0.txt", "another caption");
  EXPECT_NE(error_line(resume).find("resume: the data"), std::string::npos);
  put_file(folder_ / "data/0.txt", "a fox, number 0, in snow");
  EXPECT_NE(error_line(str(resume, "--data ", folder_ / "data", ":2")).find("resume: the data"),
            std::string::npos);
  const Output on = run_program(resume);
  EXPECT_EQ(on.code, 0) << on.text;
}

TEST_F(cli_train_checkpoint, network_with_inputs_that_captions_do_not_give__is_refused) {
  Part inpainting = unet();
  inpainting.fields.insert(1, "extra_channels=5 ");
  const std::string file = checkpoint({inpainting, text(), autoencoder()}, "inpainting");
  const std::string error = error_line(
      str("train --device cpu --model ", file, " --data ", data(),
          " --adapter lora --resolution 64 --bucket-min 64 --steps 1 --out ", folder_ / "run"));
  EXPECT_NE(error.find("needs the input 'concat'"), std::string::npos) << error;
}

TEST_F(cli_train_checkpoint, captions_that_are_cut_while_shuffled__are_told_once) {
  const std::string folder = data();
  std::string tags = "fox";
  for (int i = 0; i < 60; ++i) tags += str(", snow ", i);
  for (int i = 0; i < 3; ++i) put_file(str(folder, "/", i, ".txt"), tags);
  const std::string line = train("run", str(adapter, "--shuffle-tags --steps 4"));
  for (int i = 0; i < 3; ++i) put_file(str(folder, "/", i, ".txt"), tags);
  const Output out = run_program(line);
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("not during them: --shuffle-tags makes"), std::string::npos) << out.text;
  const size_t at = out.text.find("captions are cut after 75 tokens");
  ASSERT_NE(at, std::string::npos) << out.text;
  EXPECT_EQ(out.text.find("captions are cut", at + 1), std::string::npos) << out.text;
  const std::string told = out.text.substr(at, out.text.find('\n', at) - at);
  EXPECT_TRUE(told.ends_with("...'")) << told;  // not all 600 characters
  EXPECT_LT(told.size(), 120u) << told;
}

TEST_F(cli_train_checkpoint, numbers_beyond_the_files_dtype__are_written_as_they_are_or_refused) {
  const std::string flags = "--adapter lora --rank 4 --steps 1 --lr 0.01 ";
  ASSERT_EQ(run_program(train("alpha", flags + "--alpha 100000")).code, 0);
  const auto file = io::TensorFile::open(model("alpha", 1));
  const Tensor alpha = file.load(
      file.find("lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q.alpha"));
  ASSERT_EQ(alpha.dtype(), DType::f32);
  EXPECT_EQ(alpha.span<float>()[0], 100000.f);
  const std::string error = error_line(train("far", "--adapter lora --rank 4 --steps 1 --lr 1e6"));
  EXPECT_NE(error.find("has numbers beyond f16"), std::string::npos) << error;
  EXPECT_NE(error.find("lora_unet_"), std::string::npos) << error;
}

}  // namespace
}  // namespace ebb::testing
