// What the program says to checkpoints and configs that make no sense.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "support/program.h"
#include "train/checkpoint.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::Output;
using testing::put_file;
using testing::run_program;

class CliCheckpoint : public testing::Program {
 protected:
  // The model file of a run of one step with two classes, with other metadata.
  std::string with_metadata(const std::string& key, const std::string& text) const {
    const std::string run = folder_ / "run", file = folder_ / "x.safetensors";
    const std::string data = images(8, "/one");
    images(8, "/two");
    const std::string words = "train --device cpu --steps 1 --batch 2 --overwrite --data ";
    const Output out = run_program(str(words, data, " --out ", run));
    EXPECT_EQ(out.code, 0) << out.text;
    const auto model = io::TensorFile::open(train::find_model_file(run));
    std::vector<io::NamedTensor> tensors;
    for (const auto& e : model.entries()) tensors.push_back({e.name, model.load(e.name)});
    auto metadata = model.metadata();
    metadata[key] = text;
    io::write_safetensors(file, tensors, metadata);
    return file;
  }
  std::string with_network(const std::string& config) const {
    const char* sizes = R"({"image_size": 8, "in_channels": 3, "classes": 2, )";
    return with_metadata("ebb.model_config", sizes + config);
  }
  std::string error_of_sample(const std::string& file) const {
    return error_line(str("sample ", file, " --device cpu --n 1 --out ", folder_ / "x.png"));
  }
};

TEST_F(CliCheckpoint, config_json_that_was_edited__is_said_not_to_count) {
  const std::string run = folder_ / "run";
  const Output first = run_program(
      str("train --device cpu --steps 1 --lr 0.003 --data ", images(8), " --out ", run));
  ASSERT_EQ(first.code, 0) << first.text;
  const std::string file = run + "/config.json";
  std::string text = testing::file_bytes(file);
  const size_t at = text.find("\"lr\": 0.003");
  ASSERT_NE(at, text.npos) << text;
  testing::put_file(file, text.replace(at, 11, "\"lr\": 0.5"));
  const Output out = run_program(str("train --device cpu --resume --steps 2 --out ", run));
  EXPECT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("resume: " + file +
                          " says lr 0.5, which is not read; the checkpoint's is 0.003, and --lr "
                          "changes it\n"),
            out.text.npos)
      << out.text;
  EXPECT_NE(testing::file_bytes(file).find("\"lr\": 0.003"), text.npos);
}

TEST_F(CliCheckpoint, damaged_newest__is_reported_with_an_older_one) {
  const std::string run = folder_ / "run";
  const Output out = run_program(str("train --device cpu --steps 3 --batch 2 --checkpoint-every 1",
                                     " --data ", images(8), " --out ", run));
  EXPECT_EQ(out.code, 0) << out.text;
  const std::string newest = train::model_file(run, 3), between = train::model_file(run, 2);
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 4);
  const std::string sampled = error_of_sample(run);
  EXPECT_TRUE(sampled.ends_with(newest + "; an older model is whole: " + between)) << sampled;
  EXPECT_EQ(error_line("info " + run), sampled);
  EXPECT_TRUE(error_of_sample(newest).ends_with(newest)) << "a file was requested";
  const std::string mistake = error_of_sample(run + " --model nosuch");
  EXPECT_EQ(mistake.find("whole"), mistake.npos) << mistake;
  const std::string resumed = error_line("train --resume --steps 4 --out " + run);
  EXPECT_TRUE(
      resumed.ends_with("; the checkpoint of step 2 is whole: move model-00000003."
                        "safetensors and state-00000003.safetensors to another folder to "
                        "go on from there"))
      << resumed;
  const std::string bytes = testing::file_bytes(between);
  put_file(between, bytes.substr(0, bytes.size() - 4) + "\xff\xff\xff\xff");  // not a number
  const std::string older = error_of_sample(run);
  EXPECT_TRUE(older.ends_with("; an older model is whole: " + train::model_file(run, 1))) << older;
  EXPECT_EQ(error_line("info " + run), older);
}

TEST_F(CliCheckpoint, error_of_older_ones_too__names_none) {
  const std::string file = with_network(R"("blocks": 2})");
  for (const int64_t step : {1, 2})
    std::filesystem::copy_file(file, train::model_file(folder_ / "run", step),
                               std::filesystem::copy_options::overwrite_existing);
  const Output sampled =
      run_program(str("sample ", folder_ / "run", " --device cpu --n 1 --out ", folder_ / "x.png"));
  EXPECT_NE(sampled.text.find("the file's tensors must be those of the network"),
            sampled.text.npos);
  EXPECT_EQ(sampled.text.find("whole"), sampled.text.npos) << sampled.text;
}

TEST_F(CliCheckpoint, absurd_network__is_refused_at_once) {
  std::string file = with_network(R"("blocks": 1000000})");
  EXPECT_EQ(error_of_sample(file), "tiny: blocks must lie in [0, 65536] (1000000)  " + file);
  file = with_network(R"("blocks": 60000})");
  const std::string many = error_of_sample(file);
  EXPECT_TRUE(many.starts_with("network: must have at most 10000 tensors")) << many;
  EXPECT_TRUE(many.ends_with("  " + file)) << many;
  file = with_network(R"("blocks": 2})");
  const std::string other = error_of_sample(file);
  EXPECT_TRUE(other.starts_with("weights: the file's tensors must be those of the network"));
}

TEST_F(CliCheckpoint, absurd_config__is_refused_at_once) {
  const std::string file = folder_ / "c.json";
  put_file(file, R"({"model": "dit_s2", "network": {"depth": 1000000}})");
  EXPECT_EQ(error_line(str("train --data x --config ", file)),
            "dit: depth must lie in [0, 65536] (1000000)  " + file);
  EXPECT_EQ(error_line("train --data x --steps 1 --blocks 1000000 --out " + (folder_ / "r")),
            "tiny: blocks must lie in [0, 65536] (1000000)");
}

TEST_F(CliCheckpoint, broken_metadata__is_reported_with_the_file) {
  const std::string held = ": not JSON that can be held: number overflow parsing '1e999'";
  std::string file = with_network(R"("blocks": 1e999})");
  EXPECT_EQ(error_of_sample(file), "checkpoint: 'ebb.model_config' in " + file + held);
  Output info = run_program("info " + file);
  EXPECT_NE(info.text.find("config      of no network: config" + held), std::string::npos)
      << info.text;
  info = run_program("info --json " + file);
  const auto json = nlohmann::json::parse(info.text);
  EXPECT_EQ(json["fault"], "config" + held);
  EXPECT_TRUE(json["config"].is_null());
  file = with_metadata("ebb.model", "tinie");
  EXPECT_EQ(error_of_sample(file), "model: unknown name 'tinie' (did you mean 'tiny'?)  " + file);
  info = run_program("info " + file);
  EXPECT_NE(info.text.find("of no network: model: unknown name 'tinie'"), std::string::npos);
  file = with_metadata("ebb.diffusion_config", R"({"sigma_data": -1})");
  EXPECT_EQ(error_of_sample(file), "diffusion: sigma_data must be positive (-1)  " + file);
}

TEST_F(CliCheckpoint, number_that_is_none__is_located) {
  const std::string file = with_network(R"("dropout": NaN})");
  const std::string error = error_of_sample(file);
  EXPECT_TRUE(error.starts_with("checkpoint: 'ebb.model_config' in " + file)) << error;
  EXPECT_TRUE(error.ends_with(R"("dropout":))")) << error;
}

TEST_F(CliCheckpoint, metadata_that_no_run_writes__is_an_error) {
  std::string file = with_metadata("ebb.kind", "modell");
  EXPECT_EQ(error_of_sample(file),
            "checkpoint: 'ebb.kind' must be model or state (got 'modell')  " + file);
  file = with_metadata("ebb.step", "-3");
  EXPECT_EQ(error_of_sample(file), "checkpoint: 'ebb.step' must not be negative (-3)  " + file);
  file = with_metadata("ebb.class_names", R"(["a", "a"])");
  EXPECT_EQ(error_of_sample(file),
            "checkpoint: 'ebb.class_names' in " + file + ": 'a' stands twice");
}

TEST_F(CliCheckpoint, control_characters__do_not_reach_the_terminal) {
  const std::string file = with_metadata("ebb.kind", "a\x1b[2Jb");
  for (const std::string command : {"info ", "info --all ", "sample "}) {
    const std::string text = run_program(command + file).text;
    EXPECT_EQ(text.find('\x1b'), text.npos);
    EXPECT_NE(text.find("a\\x1b[2Jb"), text.npos) << text;
  }
}

// The state of a run has Adam's two moments of every weight beside the weights and their averages.
TEST_F(CliCheckpoint, info_of_a_state__counts_no_moments_as_parameters) {
  const std::string run = folder_ / "run";
  ASSERT_EQ(
      run_program(str("train --device cpu --steps 1 --batch 2 --data ", images(8), " --out ", run))
          .code,
      0);
  const std::string state = train::state_file(run, 1);
  int64_t parameters = 0, moments = 0;
  const auto file = io::TensorFile::open(state);
  for (const auto& e : file.entries()) {
    const bool moment = e.name.starts_with("m.") || e.name.starts_with("v.");
    (moment ? moments : parameters) += e.shape.numel();
  }
  EXPECT_GT(moments, 0);
  const auto json = nlohmann::json::parse(run_program("info --json " + state).text);
  EXPECT_EQ(json["parameters"], parameters);
  EXPECT_EQ(json["moments"], moments);
  const Output text = run_program("info " + state);
  EXPECT_NE(
      text.text.find(str("parameters  ", parameters, ", and ", moments,
                         " of the optimiser's moments, in ", file.entries().size(), " tensors\n")),
      text.text.npos)
      << text.text;
}

TEST_F(CliCheckpoint, info_of_another_model__is_refused) {
  const std::string file = with_metadata("ebb.step", "1");
  EXPECT_EQ(error_line(str("info --model adm64 ", file)),
            str("info: the file's model is tiny (--model adm64)  ", file));
  EXPECT_EQ(run_program("info --model tiny32 " + file).code, 0);
}

TEST_F(CliCheckpoint, names_of_other_classes__are_an_error) {
  const std::string file = with_metadata("ebb.class_names", R"(["a"])");
  EXPECT_EQ(
      error_of_sample(file),
      "checkpoint: must name all classes of its network or none (1 names, 2 classes)  " + file);
}

}  // namespace
}  // namespace ebb
