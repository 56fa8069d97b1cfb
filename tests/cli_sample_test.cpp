// What `ebb sample`, and `ebb train --resume`, say to settings that do not go together.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "models/model.h"
#include "support/program.h"
#include "train/checkpoint.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::program_path;
using testing::run_program;

class CliSample : public testing::Program {
 protected:
  // A run of one step with two classes; the words to go on with it or to sample from it.
  std::string trained(const std::string& flags = "") const {
    std::string data = images(8, "/one");
    images(8, "/two");
    std::string run = folder_ / "run";
    const Output out = run_program(
        str("train --device cpu --steps 1 --batch 2 --data ", data, " --out ", run, " ", flags));
    EXPECT_EQ(out.code, 0) << out.text;
    return run;
  }
  std::string png() const { return folder_ / "x.png"; }
  std::string sample(const std::string& run, const std::string& flags) const {
    const bool custom = flags.find("--schedule custom") != flags.npos;  // has its own steps
    const char* steps = custom ? "" : "--steps 2";
    return str("sample ", run, " --device cpu --n 2 ", steps, " --out ", png(), " ", flags);
  }
  bool written() const { return std::filesystem::exists(png()); }
};

TEST_F(CliSample, resume__keeps_what_the_weights_were_made_for) {
  const std::string run = trained("--label-dropout 0.1");
  const auto error = [&](const std::string& flags) {
    return error_line(str("train --device cpu --resume --steps 2 --out ", run, " ", flags));
  };
  EXPECT_EQ(error("--precond v"), "resume: the run's precond is edm and stays (--precond v)");
  EXPECT_EQ(error("--sigma-data 1"),
            "resume: the run's sigma_data is 0.5 and stays (--sigma-data 1)");
  EXPECT_EQ(error("--label_dropout 0.2"),
            "resume: the run's label_dropout is 0.1 and stays (--label-dropout 0.2)");
  EXPECT_EQ(error("--blocks 2"), "resume: the run's blocks is 1 and stays (--blocks 2)");
  EXPECT_EQ(error("--augment 0.1"), "resume: the run's augment is 0 and stays (--augment above 0)");
  const Output same = run_program(
      str("train --device cpu --resume --steps 2 --precond edm --lr 0.1 ", "--out ", run));
  EXPECT_EQ(same.code, 0) << same.text;
}

TEST_F(CliSample, diffusion_flags_of_other_models__are_errors) {
  const std::string run = trained();
  EXPECT_EQ(error_line(sample(run, "--shift 3")),
            "diffusion: shift is for precond flow (the model's is edm)");
  EXPECT_EQ(error_line(sample(run, "--betas cosine")),
            "diffusion: betas is for precond eps, v or x0 (the model's is edm)");
  EXPECT_EQ(
      error_line(sample(run, "--sigma-data 1 --precond flow")),
      "diffusion: the model was trained with precond edm, which its weights are of (--precond "
      "flow)");
  EXPECT_EQ(run_program(sample(run, "--precond EDM")).code, 0);
  std::filesystem::remove(png());
  EXPECT_EQ(error_line("train --steps 1 --data x --shift 3"),
            "diffusion: shift is for precond flow (the model's is edm)");
  for (const char* flag : {"--times", "--t-mean", "--t-std", "--P-mean", "--label-dropout"})
    EXPECT_TRUE(error_line(sample(run, str(flag, " 1"))).starts_with("sample: unknown argument"))
        << flag;
  EXPECT_FALSE(written());
  EXPECT_EQ(run_program(sample(run, "--sigma-data 1 --sigma-max 40")).code, 0);
}

TEST_F(CliSample, guidance_without_what_it_needs__is_an_error) {
  const std::string run = trained("--label-dropout 0.1");
  EXPECT_EQ(
      error_line(sample(run, "--sampler euler_cfg_pp")),
      "sample: euler_cfg_pp needs --guidance other than 1, or --rules that guide, and a model "
      "with classes (--guidance 1, 2 classes)");
  EXPECT_TRUE(error_line(sample(run, "--sampler euler_cfg_pp --rules epsilon_scaling"))
                  .ends_with("(--rules epsilon_scaling, 2 classes)"));
  EXPECT_EQ(error_line(sample(run, "--guidance 2 --class none")),
            "sample: --guidance has no effect without a class (--guidance 2, --class none)");
  EXPECT_FALSE(written());
  const Output good = run_program(sample(run, "--sampler euler_cfg_pp --guidance 2"));
  EXPECT_EQ(good.code, 0) << good.text;
  EXPECT_EQ(good.text.find("warning"), std::string::npos) << good.text;
  EXPECT_EQ(error_line(sample(run, "--rules cfg:scale=2 --class none")),
            "sample: --rules has no effect without a class (--rules cfg:scale=2, --class none)");
}

TEST_F(CliSample, rules_without_effect_or_with_other_branches__are_errors) {
  const std::string run = trained("--label-dropout 0.1");
  for (const char* rules : {"interval:sigma_lo=1000;cfg", "cfg:scale=1"})
    EXPECT_EQ(error_line(sample(run, str("--rules '", rules, "'"))),
              str("sample: --rules has no effect at any noise level of this run (80 to 0, --rules ",
                  rules, ")"));
  // also where no step of this run would ask
  EXPECT_EQ(
      error_line(sample(run, "--rules 'cfg;skip_layers:sigma_hi=0.001'")),
      "guidance: 'skip_layers' needs a prediction that this network does not provide: skipped");
  EXPECT_EQ(error_line(sample(run, "--guidance inf")), "sample: --guidance must be finite (inf)");
  EXPECT_FALSE(written());
}

TEST_F(CliSample, guidance_of_a_model_without_classes__is_an_error) {
  const std::string run = trained("--classes none");
  EXPECT_EQ(error_line(sample(run, "--guidance 2")),
            "sample: guidance needs a model with classes (--guidance 2, 0 classes)");
  EXPECT_TRUE(error_line(sample(run, "--sampler euler_cfg_pp --rules cfg:scale=2"))
                  .ends_with("a model with classes (--rules cfg:scale=2, 0 classes)"));
  // rules that do not guide need none
  const Output out = run_program(sample(run, "--rules epsilon_scaling:scaling_factor=1.1"));
  EXPECT_EQ(out.code, 0) << out.text;
}

TEST_F(CliSample, guidance_without_label_dropout__is_warned_of) {
  const std::string run = trained();
  for (const char* flags : {"--guidance 2", "--rules cfg:scale=2", "--class none"}) {
    const Output out = run_program(sample(run, flags));
    EXPECT_EQ(out.code, 0) << out.text;
    EXPECT_NE(out.text.find("trained without label dropout (label_dropout 0)"), std::string::npos)
        << out.text;
  }
  const Output plain = run_program(sample(run, ""));
  EXPECT_EQ(plain.text.find("warning"), std::string::npos) << plain.text;
}

TEST_F(CliSample, png__says_what_ran) {
  const std::string run = trained();
  EXPECT_EQ(run_program(sample(run, "--sampler 'DPM++ 2M Exponential'")).code, 0);
  auto text = io::read_png_text(png());
  EXPECT_EQ(text["schedule"], "exponential");
  EXPECT_EQ(text["noise"], "ebb");
  EXPECT_EQ(text["batch"], "2");
  EXPECT_NE(text["dtype"], "auto");
  EXPECT_EQ(run_program(sample(run, "--sampler dpmpp_sde --dialect comfy")).code, 0);
  text = io::read_png_text(png());
  EXPECT_EQ(text["noise"], "auto");
  EXPECT_EQ(text["noise_start"], "comfy");
  EXPECT_EQ(text["noise_steps"], "brownian");
}

// More steps than timesteps: levels stand twice and count once.
TEST_F(CliSample, json__has_the_steps_that_were_made) {
  const std::string run = trained("--precond eps --timesteps 30");
  const Output out =
      run_program(str("sample ", run, " --device cpu --n 1 --steps 60 --json ",
                      "--sampler euler --dialect comfy --schedule beta --out ", png()));
  EXPECT_EQ(out.code, 0) << out.text;
  const auto json = nlohmann::json::parse(out.text.substr(out.text.find('{')));
  EXPECT_EQ(json["steps"], json["evaluations"]);
  EXPECT_LT(json["steps"], 60);
  EXPECT_EQ(io::read_png_text(png())["steps"], "60");  // what gives these pictures again
}

TEST_F(CliSample, seeds__have_64_bits) {
  const std::string run = trained("--seed 18446744073709551615");
  for (const char* wrong : {"-2", "18446744073709551616", "1.5"})
    for (const std::string command : {"sample x", "train", "samplers plot"})
      EXPECT_NE(error_line(str(command, " --seed ", wrong))
                    .find(str("0 to 2^64 - 1, or -1 to draw one (got '", wrong, "') (see ebb ")),
                std::string::npos)
          << command;
  EXPECT_EQ(run_program(sample(run, "--seed 18446744073709551615")).code, 0);
  EXPECT_EQ(io::read_png_text(png())["seed"], "18446744073709551615");
  const Output more = run_program(str("train --device cpu --resume --steps 2 --out ", run));
  EXPECT_EQ(more.code, 0) << more.text;
}

TEST_F(CliSample, schedule_options__are_of_a_schedule_that_is_named) {
  const std::string run = trained();
  EXPECT_EQ(error_line(sample(run, "--schedule-options rho=3")),
            "schedule: auto has no options; give its name, karras here (rho)");
  const std::string custom = "--schedule custom --schedule-options ";
  for (const char* list : {"sigmas=80,2,0", "'sigmas=80 2 0'", "'sigmas=80;2;0'"})
    EXPECT_EQ(run_program(sample(run, custom + list)).code, 0) << list;
  EXPECT_EQ(error_line(sample(run, custom + "sigmas=80,2,file=a.txt")),
            "custom: takes sigmas or file, not both (sigmas 80,2, file a.txt)");
  EXPECT_EQ(error_line(sample(run, "--schedule custom")),
            "custom: needs its levels, sigmas=14.6,5,1,0 or file=PATH (got none)");
}

TEST_F(CliSample, out_that_cannot_be__is_said_before_anything_is_made) {
  EXPECT_EQ(error_line("sample x --out ''"), "sample: --out says nothing (got '')");
  const std::string run = trained();
  const Output out = run_program(str("sample ", run, " --device cpu --n 1 --out /dev/null/x.png"));
  EXPECT_EQ(out.code, 2);
  EXPECT_EQ(out.text,
            "ebb: error: sample: --out: cannot create (Not a directory)  /dev/null/x.png\n");
  const std::string folder = folder_ / "a.png";
  std::filesystem::create_directories(folder);
  for (const std::string path : {"/proc/x.png", "/proc", folder.c_str()}) {
    const Output bad = run_program(str("sample ", run, " --device cpu --n 1 --out ", path));
    EXPECT_EQ(bad.code, 2);
    EXPECT_TRUE(bad.text.starts_with("ebb: error: sample: --out: ")) << bad.text;
  }
}

TEST_F(CliSample, weights_that_are_not_finite__are_named) {
  const std::string run = trained();
  const std::string model = train::find_model_file(run);
  const auto file = io::TensorFile::open(model);
  std::vector<io::NamedTensor> tensors;
  for (const auto& e : file.entries()) tensors.push_back({e.name, file.load(e.name)});
  const std::string name = tensors[3].name;
  tensors[3].tensor = tensors[3].tensor.clone();
  tensors[3].tensor.span<float>()[2] = std::numeric_limits<float>::infinity();
  io::write_safetensors(model, tensors, file.metadata());
  EXPECT_EQ(error_line(sample(run, "")),
            str("checkpoint: weights must be finite (", name, " has inf as element 2)  ", model));
}

TEST_F(CliSample, names__may_have_any_case) {
  const std::string run = trained();
  const Output out = run_program(
      sample(run, "--sampler EULER --dialect KDiff --noise EBB --rules 'Epsilon-Scaling'"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(io::read_png_text(png())["noise"], "ebb");
  EXPECT_EQ(run_program(sample(run, "--class ALL --device CPU")
                            .replace(sample(run, "").find("--device cpu "), 13, ""))
                .code,
            0);
  EXPECT_EQ(run_program(sample(run, "--class TWO")).code, 0);
  EXPECT_TRUE(error_line(sample(run, "--schedule karras,,"))
                  .starts_with("schedule: unknown name 'karras,,' (did you mean 'karras'?)"));
  EXPECT_EQ(error_line(sample(run, "--dialect ComfyUI")),
            "dialect: unknown name 'ComfyUI' (did you mean 'comfy'?)");
}

TEST_F(CliSample, class_called_None__is_a_class) {
  images(8, "/None");
  const std::string run = trained();
  for (const std::string word : {"None", "none", "NONE"}) {
    EXPECT_EQ(run_program(sample(run, "--class " + word)).code, 0);
    EXPECT_EQ(io::read_png_text(png())["class"], word == "None" ? "None" : "none");
  }
}

TEST_F(CliSample, values__are_named_with_their_option) {
  const std::string run = trained();
  const auto error = [&](const std::string& flags) { return error_line(sample(run, flags)); };
  EXPECT_EQ(error("--sigma-max inf"),
            "diffusion: sigma_min (0) and sigma_max (inf) must be finite");
  EXPECT_EQ(error("--sigma-max abc"),
            "sample: sigma_max: expected a number (got 'abc') (see ebb sample --help)");
  EXPECT_EQ(error("--options foo"), "sample: --options: options must be name=value  got 'foo'");
  EXPECT_EQ(error("--noise-options foo=1"), "noise ebb: it has no options (got foo)");
  EXPECT_EQ(error("--schedule karras --schedule-options rho=x"),
            "karras: rho: expected a number (got 'x')");
  EXPECT_EQ(error("--schedule custom --schedule-options file=/tmp"),
            "custom: cannot read levels  /tmp");
  EXPECT_EQ(error("--json on"),
            "sample: --json is a switch: give --json alone or --json=on (got '--json on')");
}

TEST_F(CliSample, steps_of_a_list_of_levels__are_its_own) {
  const std::string run = trained(), png = folder_ / "x.png";
  const std::string custom = str(
      run, " --device cpu --n 1 --schedule custom --schedule-options sigmas=80,2,1,0 --out ", png);
  EXPECT_EQ(error_line(str("sample --steps 7 ", custom)),
            "sample: --steps does nothing with --schedule custom, which has its own number of "
            "them");
  const Output out = run_program("sample " + custom);
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("\n1 image in "), std::string::npos) << out.text;
  EXPECT_EQ(io::read_png_text(png)["steps"], "3");
}

TEST_F(CliSample, steps_of_an_adaptive_sampler__are_its_own) {
  const std::string run = trained();
  const std::string adaptive = str(run, " --device cpu --n 1 --sampler dpm_adaptive --out ", png());
  EXPECT_EQ(error_line(str("sample --steps 7 ", adaptive)),
            "sample: --steps does nothing with --sampler dpm_adaptive, which chooses its own steps "
            "(its option rtol says how fine)");
  EXPECT_EQ(run_program("sample " + adaptive).code, 0);
  EXPECT_EQ(error_line("samplers plot --steps 7 --sampler dpm_adaptive --out x.svg"),
            "samplers: --steps does nothing with --sampler dpm_adaptive, which chooses its own "
            "steps (its option rtol says how fine)");
}

TEST_F(CliSample, size__is_width_by_height) {
  const std::string run = trained();
  EXPECT_EQ(run_program(str("sample ", run, " --device cpu --n 1 --steps 1 --size 12x8 --out ",
                            folder_ / "wide"))
                .code,
            0);
  EXPECT_EQ(io::read_image(folder_ / "wide/00000.png").shape(), Shape({8, 12, 3}));
  EXPECT_EQ(io::read_png_text(folder_ / "wide/00000.png")["size"], "12x8");
  EXPECT_EQ(
      error_line(sample(run, "--size 30")),
      "--size: tiny makes images whose sides are multiples of 4 up to 16384 pixels (30x30; the "
      "nearest is 32x32)");
  for (const char* wrong : {"0", "8x", "x8", "8x8x8", "eight", "-8", "8,8", "1e3"})
    EXPECT_TRUE(error_line(sample(run, str("--size ", wrong)))
                    .starts_with("sample: --size must be auto, N or WIDTHxHEIGHT in pixels, 1 to "
                                 "16384 a side (got '"))
        << wrong;
  EXPECT_EQ(error_line(sample(run, "--size ''")), "sample: --size says nothing (got '')");
}

TEST_F(CliSample, numbers__are_written_as_safetensors_and_npy) {
  const std::string run = trained(), file = folder_ / "x.safetensors", npy = folder_ / "x.npy";
  const std::string words = str("sample ", run, " --device cpu --n 2 --steps 1 --out ");
  EXPECT_EQ(run_program(words + file).code, 0);
  const auto read = io::TensorFile::open(file);
  const Tensor images = read.load("images");
  EXPECT_EQ(images.shape(), Shape({2, 3, 8, 8}));
  EXPECT_EQ(read.metadata().at("sampler"), "heun");
  EXPECT_EQ(run_program(words + npy).code, 0);
  const std::string text = testing::file_bytes(npy);
  const size_t data = text.find('\n') + 1;
  EXPECT_EQ(data % 64, 0U);
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\0", 8));
  EXPECT_NE(text.find("{'descr': '<f4', 'fortran_order': False, 'shape': (2,3,8,8,), }"),
            std::string::npos);
  ASSERT_EQ(text.size() - data, static_cast<size_t>(images.bytes()));
  EXPECT_EQ(std::memcmp(text.data() + data, images.raw(), text.size() - data), 0);
}

// A network of latents: refused before any work where pictures are asked for.
TEST_F(CliSample, latents__are_no_pictures) {
  NamedModel m = find_model("dit");
  parse_fields(m.config.fields(),
               "{image_size=8 in_channels=4 classes=2 width=64 depth=1 heads=1 patch=2}");
  std::vector<io::NamedTensor> tensors;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    tensors.push_back({w.name, nn::to_file(w, nn::initial_tensor(w, 1))});
  const std::string file = folder_ / "dit.safetensors", out = folder_ / "z.safetensors";
  io::write_safetensors(file, tensors);
  const std::string words = str("sample ", file, " --device nosuch --n 2 --steps 1 --out ");
  for (const std::string& pictures : {png(), folder_ / "pictures"})
    EXPECT_EQ(error_line(words + pictures),
              str("sample: dit makes latents [8,8,4] of Stable Diffusion's autoencoder, which "
                  "nothing here makes pictures of; --out FILE.safetensors or FILE.npy takes them  ",
                  pictures));
  const Output made =
      run_program(str("sample ", file, " --device cpu --n 2 --steps 1 --out ", out));
  EXPECT_EQ(made.code, 0) << made.text;
  EXPECT_EQ(io::TensorFile::open(out).load("latents").shape(), Shape({2, 4, 8, 8}));
  EXPECT_TRUE(error_line(str("eval ", file, " --device cpu --data ", images(8)))
                  .starts_with("eval: compares pictures, and dit makes latents [8,8,4]"));
}

// A published file whose container puts the network under a prefix, with tensors of no use.
TEST_F(CliSample, published_file__loads_from_its_prefix) {
  const std::string run = trained(), model = train::find_model_file(run),
                    file = folder_ / "published.safetensors";
  const auto from = io::TensorFile::open(model);
  std::vector<io::NamedTensor> tensors;
  for (const auto& e : from.entries()) tensors.push_back({"model." + e.name, from.load(e.name)});
  io::write_safetensors(file, tensors);
  const Output out = run_program(sample(file, ""));
  EXPECT_EQ(out.code, 0) << out.text;
  const Output info = run_program("info " + file);
  EXPECT_NE(info.text.find("component   denoiser tiny, under model., images any multiple of 4"),
            std::string::npos)
      << info.text;
}

// What a config in the file lacks is said, with what stands for it.
TEST_F(CliSample, missing_fields_of_a_config__are_named) {
  const std::string run = trained(), model = train::find_model_file(run);
  const auto file = io::TensorFile::open(model);
  std::vector<io::NamedTensor> tensors;
  for (const auto& e : file.entries()) tensors.push_back({e.name, file.load(e.name)});
  auto metadata = file.metadata();
  auto config = nlohmann::ordered_json::parse(metadata["ebb.model_config"]);
  config.erase("heads");
  metadata["ebb.model_config"] = config.dump();
  io::write_safetensors(model, tensors, metadata);
  const Output out = run_program(sample(run, ""));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("checkpoint: the file's config does not have all fields; these defaults "
                          "stand for them: heads 2"),
            std::string::npos)
      << out.text;
  metadata["ebb.model_config"] = R"({"image_size": 8, "classes": 2})";
  io::write_safetensors(model, tensors, metadata);
  EXPECT_NE(run_program(sample(run, "")).text.find("these defaults stand for them: in_channels 1"),
            std::string::npos);
}

TEST_F(CliSample, labels_of_augmentation__reach_networks_that_take_them) {
  const std::string run = trained(
      "--model ddpmpp_cifar10 --model-channels 32 --channel-mult 1 --num-blocks 1 "
      "--augment 0.5");
  const auto file = io::TensorFile::open(train::find_model_file(run));
  EXPECT_TRUE(file.contains("map_augment.weight"));
}

TEST_F(CliSample, out__takes_suffixes_of_any_case) {
  const std::string run = trained(), big = folder_ / "x.PNG";
  EXPECT_EQ(run_program(str("sample ", run, " --device cpu --n 1 --steps 1 --out ", big)).code, 0);
  EXPECT_TRUE(std::filesystem::is_regular_file(big));
  EXPECT_NE(error_line("sample x --out a.GIF").find("npy file or a folder  a.GIF"), run.npos);
}

TEST_F(CliSample, out_with_a_mistyped_suffix__makes_no_folder) {
  const auto asked = [&](const std::string& name) { return error_line("sample x --out " + name); };
  EXPECT_EQ(asked("x.safetensor"),
            "sample: --out must be a .png, .jpg, .webp, .safetensors or .npy file or a folder (did "
            "you mean "
            "x.safetensors, or the folder x.safetensor/?)");
  EXPECT_NE(asked("a/x.PNGS").find("(did you mean a/x.png, or "), std::string::npos);
  for (const char* folder : {"x", "x.v2", "run.1", "x.safetensor/"})
    EXPECT_EQ(asked(folder_ / folder).find("did you mean"), std::string::npos) << folder;
  std::filesystem::create_directories(folder_ / "x.pn");
  EXPECT_EQ(asked(folder_ / "x.pn").find("did you mean"), std::string::npos);
}

TEST_F(CliSample, interrupt__says_that_nothing_was_written) {
  const std::string run = trained();  // 10000 steps take much longer than 3 seconds
  const Output out =
      run_program("--version; exec timeout --preserve-status -s INT 3 '" + program_path() +
                  "' sample --json --n 64 --steps 10000 " + run + " --out " + png());
  EXPECT_EQ(out.code, 130) << out.text;
  const std::string to = "; nothing was written to " + png() + " (at ",
                    json = R"({"interrupted":true,"signal":2,"n":64,"out":")" + png() + "\"}";
  EXPECT_NE(out.text.find("sample: interrupted by signal 2" + to), std::string::npos) << out.text;
  EXPECT_NE(out.text.find(json), std::string::npos) << out.text;
  EXPECT_FALSE(written());
}

// A shell without job control starts jobs in the background so.
TEST_F(CliSample, interrupt_that_is_ignored_from_the_start__stays_so) {
  const std::string run = folder_ / "ignoring";
  const std::string training = str("'", program_path(), "' train --device cpu --batch 2 --minutes ",
                                   "0.03 --data ", images(8), " --out ", run);
  const Output out =
      run_program(str("--version; { ", training, " & sleep 1; kill -INT $!; wait $!; }"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("saved " + run), std::string::npos) << out.text;
  EXPECT_EQ(out.text.find("stop"), std::string::npos) << out.text;
}

TEST_F(CliSample, what_cannot_be__is_refused_before_the_device_is_opened) {
  const std::string sample = "sample --device nosuch --n 1 --out " + png() + " " + trained();
  EXPECT_EQ(error_line(sample + " --noise-options a=1"), "noise ebb: it has no options (got a)");
  EXPECT_TRUE(error_line(sample + " --options a=1").starts_with("heun: unknown field 'a'"));
  EXPECT_TRUE(error_line(sample + " --noise comfy --noise-options steps=a")
                  .starts_with("comfy: steps must be"));
  EXPECT_TRUE(error_line(sample + " --sampler huen").starts_with("sampler: unknown name 'huen'"));
}

TEST_F(CliSample, interrupt__leaves_no_folder) {
  const std::string run = trained(), folder = folder_ / "a/b";
  const std::string timeout =
      "--version; exec timeout --preserve-status -s INT 2 '" + program_path() + "' ";
  const Output out =
      run_program(timeout + "sample --n 64 --steps 10000 " + run + " --out " + folder);
  EXPECT_EQ(out.code, 130) << out.text;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
  const Output eval = run_program(timeout + "eval --n 64 --steps 10000 --data " +
                                  (folder_ / "images8") + " " + run);
  EXPECT_EQ(eval.code, 130) << eval.text;
  EXPECT_NE(eval.text.find("eval: interrupted by signal 2; nothing was measured"),
            std::string::npos)
      << eval.text;
}

// What was made is not lost, and no file ends in its middle: a signal comes too late by then, and
// the program says so.
TEST_F(CliSample, interrupt_while_files_are_written__leaves_them_all) {
  const std::string run = trained(), folder = folder_ / "all";
  const std::string sampling =
      str("'", program_path(), "' sample ", run, " --device cpu --n 400 --steps 1 --out ", folder);
  const Output out =
      run_program(str("--version; { ", sampling, " & while kill -0 $!; do if [ -e ", folder,
                      "/00000.png ]; then kill -TERM $!; break; fi; done; wait $!; }"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("400 images in "), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("all images are made and are being written; "), std::string::npos)
      << out.text;
  EXPECT_EQ(out.text.find("stopping"), std::string::npos) << out.text;
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files += entry.path().extension() == ".png" && entry.file_size() > 0;
  EXPECT_EQ(files, 400);
}

// A run stopped by a signal is incomplete: scripts can tell by the exit code.
TEST_F(CliSample, interrupted_training__saves_and_tells_in_its_exit_code) {
  const std::string data = images(8), run = folder_ / "long";
  const Output out = run_program("--version; exec timeout --preserve-status -s INT 2 '" +
                                 program_path() + "' train --device cpu --batch 2 " +
                                 "--steps 1000000 --data " + data + " --out " + run);
  EXPECT_EQ(out.code, 130) << out.text;
  EXPECT_NE(out.text.find("stopping after this step, with a checkpoint;"), std::string::npos);
  EXPECT_NE(out.text.find("go on with --resume"), std::string::npos) << out.text;
  EXPECT_FALSE(train::checkpoint_steps(run).empty());
}

}  // namespace
}  // namespace ebb
