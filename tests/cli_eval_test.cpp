// The program's figures of samples: what they are, when they are left out, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "support/inception_file.h"
#include "support/program.h"

namespace ebb {
namespace {

using testing::error_line;
using testing::file_bytes;
using testing::Output;
using testing::put_file;
using testing::run_program;

class CliEval : public testing::Program {
 protected:
  // Two classes of two black pictures each: nothing tells them apart.
  std::string data() const {
    images(8, "/cat");
    return images(8, "/dog");
  }
  std::string run() const {
    const Output out = run_program(
        str("train --device cpu --batch 2 --steps 1 --data ", data(), " --out ", folder_ / "run"));
    EXPECT_EQ(out.code, 0) << out.text;
    return folder_ / "run";
  }
  std::string words(const std::string& model, const std::string& flags) const {
    return str("eval ", model, " --device cpu --steps 2 --data ", data(), " ", flags);
  }
  static nlohmann::json figures(const std::string& run) {
    return nlohmann::json::parse(file_bytes(run + "/eval.json"));
  }
  // A network file whose features are the means of the channels.
  std::string network(int64_t side) const {
    Graph g;
    const Value x = g.input("images", {DType::f32, {2, side, side, 3}});
    g.output("features", ops::reshape(ops::mean(x, {1, 2}), {2, 3}));
    const std::string path = folder_ / str("means", side, ".safetensors");
    io::write_safetensors(path, {}, {{"graph", to_text(g)}});
    return path;
  }
};

bool has(const nlohmann::json& warnings, const std::string& part) {
  return std::ranges::any_of(warnings, [&](const nlohmann::json& w) {
    return w.get<std::string>().find(part) != std::string::npos;
  });
}

TEST_F(CliEval, classifier_that_guesses__gives_no_class_accuracy_and_the_reason) {
  const std::string model = run();
  const Output out = run_program(words(model, "--n 64"));
  ASSERT_EQ(out.code, 0) << out.text;
  const nlohmann::json f = figures(model);
  EXPECT_EQ(f["features"], "classifier");
  EXPECT_LT(f["classifier_accuracy"], 0.75);
  EXPECT_TRUE(f["class_accuracy"].is_null()) << f;
  EXPECT_EQ(out.text.find("class accuracy "), std::string::npos) << out.text;
  EXPECT_TRUE(has(f["warnings"], "takes for their class is left out")) << f;
  EXPECT_TRUE(has(f["warnings"],
                  "stands on 64 samples and 2 held-out images, and its 128 features need 129"));
  EXPECT_NE(out.text.find("warning: the classifier is right on only"), std::string::npos);
  EXPECT_NE(out.text.find("kernel distance "), std::string::npos) << out.text;
}

TEST_F(CliEval, data_of_another_size__are_resized_and_it_says_so) {
  const std::string model = run();
  const Output out = run_program(str("eval ", model, " --device cpu --steps 2 --n 4 --data ",
                                     images(12), " --features ", network(8)));
  ASSERT_EQ(out.code, 0) << out.text;
  const nlohmann::json f = figures(model);
  EXPECT_TRUE(has(f["warnings"], "the samples (8x8 in colour) are compared with images that were"))
      << f;
  EXPECT_EQ(f["features"], network(8));
  EXPECT_TRUE(f["classifier_accuracy"].is_null()) << "none is needed: " << f;
  EXPECT_EQ(out.text.find("training the classifier"), std::string::npos) << out.text;
}

TEST_F(CliEval, few_samples_in_other_features__train_no_classifier) {
  const std::string model = run();
  const Output out = run_program(words(model, "--n 4 --features " + network(8)));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(out.text.find("no class accuracy: of 4 samples it says little, from 64 on there is\n"),
            std::string::npos)
      << out.text;
  EXPECT_EQ(out.text.find("training the classifier"), std::string::npos) << out.text;
  EXPECT_TRUE(figures(model)["class_accuracy"].is_null());
}

TEST_F(CliEval, classes_of_other_names__give_no_class_accuracy_and_the_reason) {
  const std::string model = run(), others = folder_ / "others";
  std::filesystem::copy(data(), others, std::filesystem::copy_options::recursive);
  std::filesystem::rename(others + "/dog", others + "/fish");
  put_file(others + "/fish/broken.png", "text");
  const Output out = run_program(str("eval ", model, " --device cpu --steps 2 --n 4 --data ",
                                     others, " --features ", network(8)));
  ASSERT_EQ(out.code, 0) << out.text;
  EXPECT_NE(
      out.text.find("no class accuracy: class 1 is 'dog' in the model and 'fish' in the data\n"),
      std::string::npos)
      << out.text;
  EXPECT_NE(out.text.find("images that cannot be read left out (1): image: must be a PNG"),
            std::string::npos)
      << out.text;
}

TEST_F(CliEval, what_cannot_be_compared__is_refused_before_the_work) {
  const std::string model = run(), one = folder_ / "one";
  std::filesystem::create_directories(one);
  io::write_png(one + "/a.png", Tensor(DType::u8, {8, 8, 3}));
  EXPECT_EQ(error_line(str("eval ", model, " --device cpu --data ", one)),
            "eval: needs at least 2 held-out images (1)  " + one);
  EXPECT_EQ(error_line(words(model, "--out a.txt")), "eval: --out must be a .json file  a.txt");
  EXPECT_EQ(error_line(words(model, "--n 1")), "eval: n must be at least 2 (got 1)");
  EXPECT_EQ(error_line(words(model, "--n 63")),
            "eval: n must be at least 64 for a classifier to say anything (got 63); --features "
            "takes fewer");
  EXPECT_EQ(error_line(words(model, "--features " + network(9))),
            "eval: the network of --features takes images [9,9,3], the model makes [8,8,3]  " +
                network(9));
}

TEST_F(CliEval, files_that_are_no_weights_of_inception__are_refused) {
  const std::string model = run();
  EXPECT_EQ(error_line(words(model, "--features inception=")),
            "eval: --features inception= must name a file");
  EXPECT_EQ(error_line(words(model, "--features inception=a.pth")),
            "inception: takes a safetensors file; docs/evaluation.md tells how to make one of  "
            "a.pth");
  EXPECT_EQ(error_line(words(model, "--features inception=" + network(8))),
            "inception: these are not its weights  " + network(8));
  const std::string folder = error_line(words(model, "--features inception=" + folder_.path()));
  EXPECT_TRUE(folder.starts_with("safetensors: ")) << folder;
}

TEST_F(CliEval, figures_that_cannot_be_written__are_printed_all_the_same) {
#ifdef __clang__
  GTEST_SKIP() << "clang's OpenMP makes a file of 1 kB when it begins, and cannot here";
#endif
  const std::string model = run(), out = folder_ / "f.json";
  const Output o = testing::run_command(
      str("(trap '' XFSZ; ulimit -f 0; exec '", testing::program_path(), "' ",
          words(model, str("--n 4 --json --features ", network(8), " --out ", out)), ")"));
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_NE(o.text.find("\"frechet_distance\":"), std::string::npos) << o.text;
  EXPECT_NE(
      o.text.find(str("ebb: error: eval: --out: cannot write (File too large)  ", out,
                      "; metrics: cannot write (File too large)  ", model, "/metrics.jsonl\n")),
      std::string::npos)
      << o.text;
}

TEST_F(CliEval, weights_of_inception__give_fid_and_kid) {
  const std::string model = run(), file = folder_ / "inception.safetensors";
  testing::write_hashed_inception(file);
  EXPECT_EQ(error_line(words(model, "--features " + file)),
            "eval: the file has weights of Inception: --features inception=" + file);
  const Output out = run_program(words(model, "--n 4 --features inception=" + file));
  ASSERT_EQ(out.code, 0) << out.text;
  const nlohmann::json f = figures(model);
  EXPECT_EQ(f["features"], "inception");
  EXPECT_GT(f["fid"], 0);
  EXPECT_TRUE(f["kid"].is_number());
  EXPECT_EQ(f["subset_size"], 2) << "all of the held-out images";
  EXPECT_FALSE(f.contains("frechet_distance")) << "of other features";
  EXPECT_TRUE(
      has(f["warnings"], "FID stands on 4 samples and 2 held-out images, and its 2048 features"))
      << f;
  EXPECT_NE(out.text.find("FID "), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("KID "), std::string::npos) << out.text;
  ASSERT_EQ(run_program("report " + model).code, 0);
  const std::string page = file_bytes(model + "/report.html");
  for (const char* row : {"<td>FID", "<td>KID", "<td class='new'>inception"})
    EXPECT_NE(page.find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace ebb
