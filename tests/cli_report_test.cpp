// What commands leave in the folder of a run, and the page about it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/program.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"

namespace ebb {
namespace {

using testing::file_bytes;
using testing::Output;
using testing::run_program;
namespace fs = std::filesystem;

class CliReport : public testing::Program {
 protected:
  std::string run() const { return folder_ / "run"; }
  // Two classes of two pictures each.
  std::string data() const {
    images(8, "/cat");
    return images(8, "/dog & co");
  }
  Output train(const std::string& flags) const {
    return run_program(
        str("train --device cpu --batch 2 --data '", data(), "' --out ", run(), " ", flags));
  }
  std::string page() const { return file_bytes(run() + "/report.html"); }
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

TEST_F(CliReport, page__shows_the_run) {
  Output out = train("--steps 4 --sample-every 2 --validation 1 --validation-every 2 --lr 0.002");
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("validation: 1 of 4 images are held out"), out.text.npos) << out.text;
  std::string html = page();
  EXPECT_EQ(html.find("<script"), html.npos);
  EXPECT_EQ(html.find("http"), html.npos) << "it needs nothing else";
  EXPECT_NE(html.find("prefers-color-scheme:dark"), html.npos);
  EXPECT_LT(html.find("<h2>Samples</h2>"), html.find("<h2>Loss</h2>"));
  EXPECT_NE(html.find("<li>cat</li><li>dog &amp; co</li>"), html.npos) << "rows are classes";
  EXPECT_EQ(count(html, "<figcaption>step "), 3u);  // the last grid large, then both
  EXPECT_NE(html.find("held-out images"), html.npos);
  EXPECT_EQ(html.find("<b>learning rate</b>"), html.npos) << "it is constant";
  EXPECT_NE(html.find("<td>lr</td><td><b>0.002</b></td><td class='usual'>0.001</td>"), html.npos);
  EXPECT_EQ(html.find("<td>beta1</td><td><b>"), html.npos) << "it is the default";
  EXPECT_NE(html.find("<dt>parameters</dt>"), html.npos);
  const size_t end = out.text.find("  loss ", out.text.find("step 4/4"));
  const double told = std::stod(out.text.substr(end + 7));
  EXPECT_NE(out.text.find(" (mean of 4)", end), out.text.npos) << out.text;
  const size_t at = html.find("<dt>loss</dt><dd>");
  ASSERT_NE(at, html.npos);
  EXPECT_NEAR(std::stod(html.substr(at + 17)), told, 1e-3);
  EXPECT_NE(html.find(" (mean of 4)</dd>", at), html.npos);
  EXPECT_NE(html.find("4 images 8x8x3 in 2 classes · "), html.npos);
  EXPECT_EQ(html.find("<h2>Quality</h2>"), html.npos);
  // what a crash cut short does not keep a page from being written
  testing::put_file(run() + "/eval.json", "{");
  testing::put_file(run() + "/samples.png", "no picture");
  EXPECT_EQ(run_program("report " + run()).code, 0);
}

TEST_F(CliReport, sample_and_eval__write_into_the_folder_of_a_run) {
  ASSERT_EQ(train("--steps 2").code, 0);
  Output out = run_program(str("sample ", run(), " --device cpu --n 4 --steps 2"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_TRUE(fs::exists(run() + "/samples.png"));
  const std::string words =
      str("eval ", run(), " --device cpu --n 64 --steps 2 --data '", data(), "'");
  out = testing::run_command(str("XDG_CACHE_HOME='", folder_ / "cache", "' '",  // no classifier yet
                                 testing::program_path(), "' ", words));
  ASSERT_EQ(out.code, 0) << out.text;
  const auto figures = nlohmann::json::parse(file_bytes(run() + "/eval.json"));
  EXPECT_EQ(figures["n"], 64);
  const size_t few = out.text.find("warning: the Frechet distance stands on 64 samples"),
               work = out.text.find("training the classifier: step 1 of ");
  ASSERT_NE(work, out.text.npos) << out.text;
  EXPECT_LT(few, work) << "known before the work\n" << out.text;
  EXPECT_EQ(out.text.find("stands on 64 samples", work), out.text.npos) << "said once";
  EXPECT_NE(out.text.find("s left\n", out.text.find("sampling 64 images: ")), out.text.npos);
  const auto lines = lines_of(run() + "/metrics.jsonl");
  EXPECT_EQ(lines.back()["step"], 2);
  EXPECT_EQ(lines.back()["eval/frechet_distance"], figures["frechet_distance"]);
  // the run goes on behind it, and the page compares
  ASSERT_EQ(train("--resume --steps 3").code, 0);
  const std::string other = folder_ / "other.json";
  ASSERT_EQ(run_program(words + " --out " + other).code, 0);
  EXPECT_EQ(nlohmann::json::parse(file_bytes(other))["step"], 3);
  EXPECT_EQ(nlohmann::json::parse(file_bytes(run() + "/eval.json"))["step"], 2);
  ASSERT_EQ(run_program("report " + run()).code, 0);
  const std::string html = page();
  EXPECT_NE(html.find("<th>step 2</th><th>step 3</th>"), html.npos);
  EXPECT_NE(html.find("lower is better"), html.npos);
  EXPECT_NE(html.find("<li>cat</li><li>dog &amp; co</li>"), html.npos);
  // a file is no folder: the picture lies where the program was started
  const std::string file = fs::absolute(train::find_model_file(run())).string();
  const std::string here = folder_ / "here";
  fs::create_directories(here);
  out = testing::run_command(str("cd ", here, " && '", testing::program_path(), "' sample ", file,
                                 " --device cpu --n 1 --steps 2"));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_TRUE(fs::exists(here + "/samples.png"));
}

// Kills a run and lets it go on, many times, at other moments each time.
TEST_F(CliReport, run_that_is_killed_often__is_the_same_as_one_that_is_not) {
  const std::string flags =
      "--steps 40 --checkpoint-every 3 --sample-every 6 --keep 2 --validation 1 "
      "--validation-every 4 --no-tensorboard";
  ASSERT_EQ(train(flags).code, 0);
  const std::string whole = folder_ / "whole";
  fs::rename(run(), whole);
  bool done = false;
  int kills = 0;
  double seconds = 0.4;  // more each time, so that it comes to an end on any machine
  for (; !done && kills < 20; ++kills, seconds *= 1.5) {
    const bool begun = !train::checkpoint_steps(run()).empty();
    const Output out =
        testing::run_command(str("timeout -s KILL ", seconds, " '", testing::program_path(),
                                 "' train --device cpu --batch 2 --data '", data(), "' --out ",
                                 run(), " ", flags, begun ? " --resume" : " --overwrite"));
    done = out.code == 0;
  }
  ASSERT_TRUE(done) << kills;
  EXPECT_GT(kills, 1);
  const auto grids = [](const std::string& folder) {
    std::set<std::string> out;
    for (const auto& e : fs::directory_iterator(folder + "/samples"))
      out.insert(e.path().filename().string());
    return out;
  };
  EXPECT_EQ(grids(run()), grids(whole));
  const auto steps_of = [](const std::string& folder, const char* key) {
    std::vector<int64_t> out;
    for (const auto& line : lines_of(folder + "/metrics.jsonl"))
      if (line.contains(key)) out.push_back(line["step"]);
    return out;
  };
  EXPECT_EQ(steps_of(run(), "loss"), steps_of(whole, "loss"));
  size_t models = 0;
  for (const auto& e : fs::directory_iterator(run()))
    models += e.path().filename().string().starts_with("model-") ? 1 : 0;
  EXPECT_EQ(models, 2u);
  EXPECT_EQ(file_bytes(train::model_file(run(), 40)), file_bytes(train::model_file(whole, 40)));
}

TEST_F(CliReport, damaged_files__are_said_to_be_left_out) {
  ASSERT_EQ(train("--steps 2").code, 0);
  testing::put_file(run() + "/config.json", "{");
  std::ofstream(run() + "/metrics.jsonl", std::ios::app) << "{\"step\": 3, \"lo\n";
  const Output out = run_program("report " + run());
  EXPECT_EQ(out.code, 0);
  for (const std::string& rule :
       {str("report: left out, as it is no JSON object  ", run(), "/config.json"),
        str("report: lines that are no JSON objects with a step are left out (1)  ", run(),
            "/metrics.jsonl")}) {
    EXPECT_NE(out.text.find("warning: " + rule), out.text.npos) << out.text;
    EXPECT_EQ(count(page(), rule), 1u);
  }
}

}  // namespace
}  // namespace ebb
