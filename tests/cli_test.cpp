// What the program says to mistakes at its command line: one line, exit code 2.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/program.h"
#include "train/run_folder.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::program_path;
using testing::put_file;
using testing::run_program;

class Cli : public testing::Program {};

TEST_F(Cli, repeated_flag__is_named) {
  for (const char* words :
       {"train --steps 1 --steps 2", "train --steps=1 --data x --steps 2", "sample x --n 1 --n 1"})
    EXPECT_TRUE(error_line(words).ends_with(" is given more than once")) << words;
  // also where a command reads the flag before the others
  EXPECT_EQ(error_line("train --model nosuch --model tiny"),
            "train: --model is given more than once");
  EXPECT_EQ(error_line("train --lr-final 1 --lr_final 2"),
            "train: --lr-final is given more than once");
}

TEST_F(Cli, bench_of_nothing__is_refused_before_it_measures) {
  const auto error = [](const std::string& words) {
    const Output out = run_program("bench --device cpu " + words);
    EXPECT_EQ(out.code, 2);
    EXPECT_TRUE(out.text.starts_with("ebb: error: bench: ")) << out.text;
    return out.text.substr(19);
  };
  EXPECT_EQ(error("matmull"), "no bench example matches 'matmull' (did you mean 'matmul'?)\n");
  EXPECT_EQ(error("--recompute all pad"),
            "--recompute is for training steps, and 'pad' matches none\n");
  // an op of expressions, which has no kernel of its own here
  EXPECT_TRUE(error("silu").starts_with("no bench example matches 'silu'"));
}

TEST_F(Cli, bench_load__loads_a_file_or_random_weights) {
  const Output out = run_program("bench load --device cpu --size 48MB --json");
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find(R"({"op":"load","device":"cpu","gb":0.048)"), std::string::npos)
      << out.text;
  const std::string either = "bench: load needs either --file or --size (got ";
  EXPECT_EQ(error_line("bench load"), either + "neither)");
  EXPECT_EQ(error_line("bench load --file nofile --size 5MB"), either + "both)");
  EXPECT_EQ(error_line("bench matmul --size 1GB"), "bench: --file and --size are for bench load");
  EXPECT_EQ(error_line("bench load --size 5"),
            "bench: --size must be a number and a unit: MB or M (10^6 bytes), GB or G (10^9), MiB "
            "(2^20) or GiB (2^30) ('5')");
}

TEST_F(Cli, output_that_is_lost__is_an_error) {
  const Output full =
      run_program(str("--version > /dev/null; { '", program_path(), "' samplers > /dev/full; }"));
  EXPECT_EQ(full.code, 2);
  EXPECT_TRUE(full.text.ends_with("ebb: error: standard output: cannot write all of it\n"))
      << full.text;
  // a reader who has seen enough is none
  const std::string code = folder_ / "code";
  run_program(str("--version; { '", program_path(), "' samplers --json; echo $? > ", code,
                  "; } | head -c 1"));
  EXPECT_EQ(testing::file_bytes(code), "0\n");
}

TEST_F(Cli, names_of_commands_and_models__may_have_any_case) {
  const Output out = run_program("Explain --model TINY --device CPU --stage graph --batch 1");
  EXPECT_EQ(out.code, 0) << out.text;
}

TEST_F(Cli, names_of_choices__may_have_any_case) {
  Output out =
      run_program("explain --precond EPS --betas Cosine --stage GRAPH --tune OFF --batch 1");
  EXPECT_EQ(out.code, 0) << out.text;
  out = run_program("explain --no-train --dtype BF16 --stage Fused --batch 1");
  EXPECT_EQ(out.code, 0) << out.text;
  const std::string run = folder_ / "run", config = folder_ / "c.json";
  put_file(config, R"({"weighting": "MIN_SNR", "train": {"classes": "None"}})");
  out = run_program(str("train --steps 1 --batch 1 --schedule COSINE --dtype F32 --precond Flow ",
                        "--times UNIFORM --tune Off --data ", images(8), " --out ", run,
                        " --config ", config));
  EXPECT_EQ(out.code, 0) << out.text;
  const std::string used = testing::file_bytes(run + "/config.json");
  for (const char* name : {"cosine", "f32", "flow", "uniform", "off", "min_snr", "none"})
    EXPECT_NE(used.find(str('"', name, '"')), std::string::npos) << name;
  EXPECT_EQ(run_program("samplers LIST").text, run_program("samplers").text);
  out = run_program(
      str("sample ", run,
          " --schedule AUTO --noise Auto --dtype F32 --n 1 --steps 2 --options S_CHURN=0 --out ",
          folder_ / "x.png"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_EQ(error_line("bench --device cpu --recompute ALL PAD"),
            "bench: --recompute is for training steps, and 'pad' matches none");
}

TEST_F(Cli, words_that_are_no_choices__suggest_one) {
  EXPECT_EQ(error_line("bench --tune slow"), "tune: unknown value 'slow' (known: off, fast, full)");
  EXPECT_EQ(error_line("bench --tune fats"), "tune: unknown value 'fats' (did you mean 'fast'?)");
  EXPECT_EQ(error_line("samplers plott"), "samplers: unknown name 'plott' (did you mean 'plot'?)");
  EXPECT_EQ(error_line("samplers 'dpm++ 2m karas'"),
            "sampler: unknown name 'dpm++ 2m karas' (did you mean 'dpm++ 2m karras'?)");
}

// No device has this name: what is opened first would tell of it.
TEST_F(Cli, settings_of_a_diffusion__are_looked_at_before_the_work) {
  const std::string train = "train --device nosuch --steps 1 --data nosuch ";
  EXPECT_EQ(error_line(train + "--precond edmm --P-mean 1"),
            "diffusion: unknown precond 'edmm' (did you mean 'edm'?)");
  EXPECT_EQ(error_line(train + "--precond eps --betas foo").substr(0, 30),
            "diffusion: unknown betas 'foo'");
  EXPECT_EQ(error_line(train + "--label-dropout 2"),
            "diffusion: label_dropout must lie in [0, 1] (2)");
  EXPECT_EQ(error_line("explain --device nosuch --precond edmm --P-mean 1"),
            "diffusion: unknown precond 'edmm' (did you mean 'edm'?)");
}

TEST_F(Cli, model_of_no_name__is_refused) {
  for (const std::string command : {"train", "explain", "sample x", "eval x", "info x"})
    EXPECT_EQ(error_line(command + " --model ''"),
              command.substr(0, command.find(' ')) + ": --model says nothing (got '')");
}

TEST_F(Cli, sizes_of_images__are_width_by_height) {
  const std::string data = images(8), wide = folder_ / "wide";
  std::filesystem::create_directories(wide);
  io::write_png(wide + "/a.png", Tensor(DType::u8, {4, 6, 3}));
  const std::string run = " --steps 1 --batch 1 --out " + (folder_ / "run");
  const std::string error = error_line(str("train --data ", wide, run));
  EXPECT_TRUE(error.starts_with("train: images must be square (6x4x3); --size")) << error;
  const Output out = run_program(str("train --limit 5 --data ", data, run));
  EXPECT_EQ(out.code, 0);
  EXPECT_NE(out.text.find("2 images 8x8x3 without classes"), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("--limit 5: all 2 images are used, there are no more\n"),
            std::string::npos)
      << out.text;
}

TEST_F(Cli, help_of_a_command__is_that_of_its_flag) {
  const Output out = run_program("help bench");
  EXPECT_EQ(out.code, 0);
  EXPECT_EQ(out.text, run_program("bench --help").text);
  EXPECT_EQ(error_line("help trian"), "unknown command 'trian' (did you mean 'train'?)");
}

TEST_F(Cli, switch__may_be_turned_off_where_a_run_has_it_off) {
  const std::string run = " --out " + (folder_ / "run"), quiet = " --no-tensorboard --no-flip";
  const std::string first = "train --batch 1 --steps 1 --network-channels 4 --heads 0 --data ";
  EXPECT_EQ(run_program(str(first, images(8), run, quiet)).code, 0);
  const Output again = run_program(str("train --resume --steps 2", run, quiet));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(error_line("sample x --learn-sigma maybe"),
            "sample: learn_sigma: expected on or off (got 'maybe') (see ebb sample --help)");
}

TEST_F(Cli, unknown_flag__suggests_one) {
  EXPECT_EQ(error_line("train --stps 3"),
            "train: unknown argument '--stps' (did you mean '--steps'?)");
  EXPECT_EQ(error_line("smaple"), "unknown command 'smaple' (did you mean 'sample'?)");
  const std::string far = error_line("train --zzz 3");
  EXPECT_TRUE(far.starts_with("train: unknown argument '--zzz' (nearest of ")) << far;
  EXPECT_EQ(std::ranges::count(far, ','), 4) << far;  // five of them
  EXPECT_EQ(error_line("train --image-size 32"),
            "train: the data decide --image-size; --size says how they are read");
}

TEST_F(Cli, file_that_is_no_checkpoint__is_called_what_it_is) {
  const std::string png = images(8) + "/a.png", json = folder_ / "a.json";
  put_file(json, R"({"steps": 3})");
  for (const char* command : {"sample ", "eval --data x "})
    EXPECT_EQ(error_line(str(command, png)),
              str("safetensors: must be a safetensors file (this is a PNG image)  ", png));
  EXPECT_EQ(error_line(str("info ", json)),
            str("safetensors: must be a safetensors file (this is JSON text)  ", json));
  EXPECT_EQ(error_line(str("report ", png)),
            str("report: must be the folder of a run (there is no metrics.jsonl in it)  ", png));
  EXPECT_EQ(error_line(str("report ", folder_ / "nowhere")),
            "report: must be the folder of a run (it is not there)  " + folder_ / "nowhere");
}

TEST_F(Cli, config_that_breaks_off__is_located) {
  const std::string file = folder_ / "c.json";
  const auto error_with = [&](const std::string& text) {
    put_file(file, text);
    const std::string line = error_line(str("train --config ", file));
    return line.substr(0, line.find(str("  ", file)));
  };
  EXPECT_EQ(error_with("{\"train\": {\n  \"steps\": 5,,\n}}"),
            "config: not JSON: unexpected ','; expected string literal (line 2, column 14, "
            "behind \"steps\": 5,)");
  EXPECT_EQ(error_with(R"({"steps": 5, "steps": 6})"), "config: \"steps\" is given more than once");
  EXPECT_EQ(error_with("[1]"), "config: must be a JSON object");
  EXPECT_EQ(error_with(R"({"image_size": 32})"),
            str(file, ": the data decide 'image_size'; 'size' says how they are read"));
  EXPECT_EQ(error_with(R"({"stepz": 32})"),
            str(file, ": unknown setting 'stepz' (did you mean 'steps'?)"));
}

TEST_F(Cli, config_of_no_name__is_refused) {
  EXPECT_EQ(error_line("train --steps 1 --config ''"), "train: --config says nothing (got '')");
}

TEST_F(Cli, resume__says_why_there_is_nothing_to_resume) {
  const std::string run = folder_ / "run", resume = "train --device cpu --resume --out " + run;
  EXPECT_EQ(error_line(resume),
            "resume: there is no run in the folder; without --resume one begins  " + run);
  std::filesystem::create_directories(run);
  put_file(run + "/metrics.jsonl", "");
  EXPECT_EQ(error_line(resume),
            "resume: the run ended before its first checkpoint, so there is nothing to go on from; "
            "--overwrite starts anew, and a smaller --checkpoint-every saves sooner  " +
                run);
  const std::string state = run + "/state-00000002.safetensors";
  put_file(state, "");
  EXPECT_EQ(error_line(resume), "safetensors: file must have at least 8 bytes (0)  " + state);
  const std::string header = R"({"__metadata__":{"ebb.kind":"state"}})";
  put_file(state, std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header);
  EXPECT_EQ(error_line(resume),
            str("resume: the state's model file is missing; --overwrite ",
                "deletes the state and starts anew  ", run, "/model-00000002.safetensors"));
  {
    const train::RunLock training = train::begin_run_folder(run, false, {});
    EXPECT_EQ(error_line(resume), "out: another process is training in the folder  " + run);
  }
  const std::string words = " --device cpu --batch 1 --out " + run;
  Output out = run_program(str("train --overwrite --steps 2 --data ", images(8), words));
  EXPECT_EQ(out.code, 0) << out.text;
  out = run_program(str("train --resume --minutes 1", words));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(
      out.text.find("nothing to do: the run has 2 steps (--steps 2); a larger --steps goes on,"
                    " or --steps 0 until --minutes are over\n"),
      std::string::npos)
      << out.text;
}

TEST_F(Cli, size_that_a_network_cannot_take__leads_to_size) {
  const std::string data = images(31);
  EXPECT_EQ(error_line(str("train --device cpu --steps 1 --model tiny --data ", data)),
            str("tiny: image_size (31) must be a multiple of 4; --size 28 crops and ",
                "resizes the images  ", data));
  EXPECT_EQ(error_line(str("train --device cpu --steps 1 --model dit_s2 --data ", data)),
            str("dit: patch (2) must divide image_size (31); --size 30 crops and resizes the ",
                "images  ", data));
}

TEST_F(Cli, size_that_a_network_cannot_take__is_refused_before_images_are_read) {
  put_file(folder_ / "broken/a.png", "no picture");
  const std::string words = "train --device cpu --steps 1 --data " + (folder_ / "broken");
  EXPECT_EQ(error_line(words + " --size 33"),
            str("tiny: image_size (33) must be a multiple of 4; --size 32 crops and resizes the ",
                "images  ", folder_ / "broken"));
  EXPECT_TRUE(error_line(words + " --size 32").starts_with("dataset: no image can be read"));
  const std::string run = folder_ / "run", data = images(8);
  ASSERT_EQ(
      run_program(str("train --device cpu --steps 1 --batch 2 --data ", data, " --out ", run)).code,
      0);
  EXPECT_EQ(error_line(str("train --resume --steps 2 --size 16 --out ", run)),
            "resume: the run's images are 8x8 and stay (--size 16)");
}

TEST_F(Cli, interrupt_while_images_are_read__is_answered) {
  const std::string data = folder_ / "many", run = folder_ / "run";
  std::filesystem::create_directories(data);
  io::write_png(data + "/00000.png", Tensor(DType::u8, {1024, 1024, 3}));
  for (int64_t i = 1; i < 20000; ++i)
    std::filesystem::create_symlink(data + "/00000.png", str(data, "/", i, ".png"));
  const testing::Output out =
      run_program("--version; exec timeout --preserve-status -s INT 2 '" + program_path() +
                  "' train --device cpu --size 32 --steps 1 --data " + data + " --out " + run);
  EXPECT_EQ(out.code, 130) << out.text;
  EXPECT_NE(out.text.find("stopping; again, after a second, to end now\n"), out.text.npos)
      << out.text;
  EXPECT_NE(
      out.text.find("train: interrupted by signal 2 while images were read; nothing was written\n"),
      out.text.npos)
      << out.text;
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST_F(Cli, file_without_tensors__is_called_so) {
  const std::string file = folder_ / "empty.safetensors";
  put_file(file, std::string("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_EQ(run_program("info " + file).text, "the file has no tensors, so it holds no model\n");
  EXPECT_EQ(error_line("sample " + file), "model: the file has no tensors  " + file);
}

TEST_F(Cli, network_of_a_config_that_is_not_followed__is_said) {
  const std::string file = folder_ / "c.json";
  put_file(file, R"({"network": {"image_size": 32, "in_channels": 3}})");
  const Output out = run_program(str("train --device cpu --steps 1 --batch 2 --config ", file,
                                     " --data ", images(8), " --out ", folder_ / "run"));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("config: network.image_size follows from the data and other settings "
                          "(8, not 32)\n"),
            std::string::npos)
      << out.text;
  EXPECT_EQ(out.text.find("network.in_channels"), std::string::npos) << out.text;
}

TEST_F(Cli, explain__knows_the_dtypes_of_training) {
  EXPECT_EQ(error_line("explain --dtype f16"),
            "explain: dtype of a training step must be f32 or bf16 (got 'f16')");
  EXPECT_EQ(error_line("explain --no-train --stage grad"),
            "explain: stage grad is of the training step (--no-train)");
  EXPECT_EQ(error_line("explain --no-train --dtype f8"),
            "explain: unknown dtype 'f8' (known: f32, bf16, f16)");
  EXPECT_NE(run_program("explain --stage passes").text.find("fuse_loops"), std::string::npos);
  EXPECT_NE(run_program("explain --stage launches").text.find("launches"), std::string::npos);
  EXPECT_EQ(error_line("explain --no-train --optimizer lion"),
            "explain: --optimizer is for the training step (--no-train)");
  for (const auto& [stage, flag] : {std::pair{"graph", "--optimizer lion"},
                                    {"graph", "--dtype bf16"},
                                    {"passes", "--optimizer lion"},
                                    {"passes", "--batch 3"},
                                    {"passes", "--P-mean 1"}})
    EXPECT_EQ(error_line(str("explain --stage ", stage, " ", flag)),
              str("explain: ", std::string(flag).substr(0, std::string(flag).find(' ')),
                  " has no effect on --stage ", stage));
  EXPECT_EQ(error_line("explain --stage after:"),
            "explain: after: needs a pass (ebb explain --stage passes)");
  EXPECT_EQ(error_line("explain --stage after:fuse_lops"),
            "lowering: unknown pass 'fuse_lops' (did you mean 'fuse_loops'?)");
  EXPECT_NE(run_program("explain --stage after:lower").text,
            run_program("explain --stage fused").text);
  const Output low = run_program("explain --no-train --dtype bf16 --stage fused");
  EXPECT_NE(low.text.find("bf16["), std::string::npos);
}

TEST_F(Cli, device_that_is_not_here__is_for_explain) {
  EXPECT_EQ(error_line("bench silu --device cuda:h200"),
            "device: must be auto, cpu or cuda; a GPU that is not here is for ebb explain (got "
            "'cuda:h200')");
  EXPECT_NE(run_program("explain --help").text.find("cuda:h100 or cuda:h200"), std::string::npos);
  EXPECT_EQ(run_program("sample --help-all").text.find("cuda:h"), std::string::npos);
}

TEST_F(Cli, explain__shortens_long_expressions) {
  const Output brief = run_program("explain --model tiny --batch 2"),
               full = run_program("explain --model tiny --batch 2 --all");
  const std::string types = "pointwise f32[] (91 times) {expr=<91|t2=add(x0,x1);";
  EXPECT_NE(brief.text.find(types), brief.text.npos) << brief.text;
  EXPECT_NE(brief.text.find("; 87 more; "), brief.text.npos);
  EXPECT_EQ(full.text.find(" more; "), full.text.npos);
  EXPECT_NE(full.text.find("f32[],f32[],f32[],f32[],f32[]"), full.text.npos);
}

TEST_F(Cli, recompute_without_a_unit__is_an_error) {
  EXPECT_EQ(error_line(str("train --steps 1 --recompute 100 --data ", images(8))),
            "recompute: must be off, pointwise, all, auto or a size like 8GB or "
            "500MB ('100', which has no "
            "unit)");
  EXPECT_EQ(error_line(str("train --steps 1 --recompute al --data ", images(8))),
            "recompute: must be off, pointwise, all, auto or a size like 8GB or "
            "500MB ('al') (did you mean "
            "'all'?)");
}

TEST_F(Cli, flags_of_explain__are_those_of_the_diffusion) {
  EXPECT_EQ(error_line("explain --shift 3"),
            "diffusion: shift is for precond flow (the model's is edm)");
  EXPECT_EQ(error_line("explain --precond flow --sigma-data 3"),
            "diffusion: sigma_data is for precond edm (the model's is flow)");
  EXPECT_EQ(error_line("explain --sigma-data -1"), "diffusion: sigma_data must be positive (-1)");
  EXPECT_EQ(error_line("explain --no-train --sigma-data 1"),
            "explain: --sigma-data is for the training step (--no-train)");
  for (const char* flags : {"--precond edm", "--no-learn-sigma"}) {
    const Output out = run_program(str("explain --model adm64 --stage graph --batch 1 ", flags));
    EXPECT_EQ(out.code, 0) << out.text.substr(0, 300);
  }
}

TEST_F(Cli, bench_of_an_evaluation__is_checked_and_timed) {
  const Output out = run_program("bench denoise/tiny --device cpu --threads 2 --json");
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find(R"("op":"denoise","example":"tiny","dtype":"f32")"), std::string::npos)
      << out.text;
  EXPECT_NE(out.text.find(R"("check":[)"), std::string::npos);
}

// Far more than any machine has: nothing is allocated to explain a plan.
TEST_F(Cli, explain__needs_no_memory_for_what_it_explains) {
  for (const char* flags : {"--model adm64", "--model adm64 --no-train --dtype bf16"}) {
    const Output out = run_program(str("explain --batch 1000000 --device cpu --json ", flags));
    EXPECT_EQ(out.code, 0) << out.text.substr(0, 300);
    EXPECT_NE(out.text.find("\"arena_bytes\":"), std::string::npos);
  }
}

TEST_F(Cli, long_lists_of_numbers__are_explained_by_their_ends) {
  const std::string words = "explain --precond eps --batch 1 --stage ";
  for (const char* stage : {"graph", "plan", "plan --json"}) {
    const Output out = run_program(words + stage);
    EXPECT_EQ(out.code, 0) << out.text.substr(0, 300);
    EXPECT_NE(out.text.find(" 994 more, "), std::string::npos) << stage;
  }
  const std::string all = run_program(words + "graph --all").text;
  EXPECT_EQ(all.find(" more, "), std::string::npos);
  EXPECT_GT(all.size(), run_program(words + "graph").text.size() + 10000);
}

TEST_F(Cli, absurd_numbers__are_refused) {
  EXPECT_EQ(error_line("explain --batch 1000000000000"),
            "explain: batch must be 1 to 1000000 (got 1000000000000)");
  const std::string train = "train --steps 1 --data " + images(8) + " --out " + (folder_ / "r");
  EXPECT_EQ(error_line(train + " --batch 1000000000000"),
            "batch: must be at most 1000000 (1000000000000)");
  EXPECT_EQ(error_line(train + " --precond eps --timesteps 1000000000000"),
            "diffusion: timesteps must lie in [2, 100000] (1000000000000)");
  EXPECT_EQ(error_line(train + " --lr inf"), "lr: must be above 0 and finite as f32 (inf)");
  EXPECT_EQ(error_line(train + " --lr 1e39"), "lr: must be above 0 and finite as f32 (1e+39)");
  EXPECT_EQ(error_line(train + " --lr 1e-300"), "lr: must be above 0 and finite as f32 (1e-300)");
  EXPECT_EQ(error_line(train + " --minutes inf"), "minutes: must be finite and not negative (inf)");
}

TEST_F(Cli, help__shows_what_is_common_and_all_when_asked) {
  const auto flags = [](const std::string& words) {
    const std::string text = run_program(words).text;
    size_t n = 0;
    for (size_t at = text.find("\n  --"); at != text.npos; at = text.find("\n  --", at + 1)) ++n;
    return n;
  };
  for (const std::string command : {"train", "sample", "eval", "explain"}) {
    EXPECT_EQ(flags(command + " --help"), 11u) << command;  // ten, and --help-all
    EXPECT_GT(flags(command + " --help-all"), 30u) << command;
  }
  const std::string help = run_program("train --help").text;
  EXPECT_NE(help.find(" more options: ebb train --help-all"), help.npos) << help;
  EXPECT_NE(help.find(" dit_s2 "), help.npos) << help;
  EXPECT_EQ(help.find("sd15"), help.npos) << "takes text, which data have none of";
  EXPECT_EQ(flags("bench --help"), flags("bench --help-all"));
}

TEST_F(Cli, help_of_train__lists_the_models) {
  const Output out = run_program("train --help");
  EXPECT_EQ(out.code, 0);
  for (const char* name : {"adm adm64", "dit dit_xl2", "songunet ddpmpp_cifar10", "tiny tiny32"})
    EXPECT_NE(out.text.find(str("\n  ", name)), std::string::npos) << name;
}

}  // namespace
}  // namespace ebb
