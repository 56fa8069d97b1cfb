// `ebb train` as several processes under mpirun: as one process trains, whatever is split, killed
// or resumed on another number of them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "support/mpirun.h"
#include "support/program.h"
#include "support/toy_run.h"

namespace ebb {
namespace {

using testing::Output;
using testing::run_command;
namespace fs = std::filesystem;

class CliRanks : public testing::Program {
 protected:
  void SetUp() override {
    testing::Program::SetUp();
    if (const std::string why = testing::no_mpirun(); !why.empty()) GTEST_SKIP() << why;
    Tensor picture(DType::u8, {8, 8, 3});
    for (int i = 0; i < 16; ++i) {
      for (size_t k = 0; k < 192; ++k)
        picture.span<uint8_t>()[k] =
            static_cast<uint8_t>((k * 37 + static_cast<size_t>(i) * 91) % 251);
      fs::create_directories(folder_ / "data");
      io::write_png(folder_ / str("data/", i, ".png"), picture);
    }
  }
  std::string out(const std::string& name) const { return folder_ / name; }
  // Of 8 images a step, in f32.
  std::string words(const std::string& name, const std::string& flags) const {
    return str("'", testing::program_path(),
               "' train --device cpu --dtype f32 --threads 1 --batch 8", " --data '",
               folder_ / "data", "' --out '", out(name), "' ", flags);
  }
  static std::string on(int ranks, const std::string& words) {
    return testing::on_ranks(ranks, words);
  }
  // The tensors of the state of a step, by name.
  std::map<std::string, std::vector<float>> state(const std::string& name, int64_t step) const {
    std::map<std::string, std::vector<float>> all;
    for (const std::string& path :
         {train::model_file(out(name), step), train::state_file(out(name), step)}) {
      const auto file = io::TensorFile::open(path);
      for (const auto& e : file.entries()) {
        const Tensor t = file.load(e).to(DType::f32);
        all[path.substr(out(name).size()) + e.name].assign(t.span<float>().begin(),
                                                           t.span<float>().end());
      }
    }
    return all;
  }
  void expect_same_losses(const std::string& a, const std::string& b) const {
    const auto x = testing::metrics(out(a)), y = testing::metrics(out(b));
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      for (const char* name : {"loss", "validation/loss"}) {
        ASSERT_EQ(x[i].contains(name), y[i].contains(name));
        if (!x[i].contains(name)) continue;
        EXPECT_NEAR(x[i][name], y[i][name], 1e-5);
      }
  }
  void expect_close(const std::string& a, const std::string& b, int64_t step) const {
    const auto x = state(a, step), y = state(b, step);
    ASSERT_EQ(x.size(), y.size());
    for (const auto& [name, v] : x)
      for (size_t i = 0; i < v.size(); ++i)
        // Adam divides by the root of v: where a gradient is a rounding, so is its direction
        ASSERT_NEAR(v[i], y.at(name)[i], 2e-5 + 1e-4 * std::abs(v[i])) << name << ' ' << i;
  }
};

TEST_F(CliRanks, two_ranks__train_the_weights_of_one) {
  ASSERT_EQ(run_command(words("one", "--steps 4")).code, 0);
  for (const char* shard : {"none", "optimizer", "weights"}) {
    const Output two = run_command(on(2, words(shard, str("--steps 4 --shard ", shard))));
    ASSERT_EQ(two.code, 0) << two.text;
    EXPECT_NE(two.text.find("2 ranks"), two.text.npos) << two.text;
    EXPECT_EQ(two.text.find("16 images"), two.text.rfind("16 images")) << "one rank speaks";
    expect_close(shard, "one", 4);
    expect_same_losses(shard, "one");
  }
}

TEST_F(CliRanks, micro_batches_and_validation_on_four__are_the_same_run) {
  const std::string flags = "--steps 3 --accumulation 2 --validation 2 --validation-every 1";
  ASSERT_EQ(run_command(words("one", flags)).code, 0);
  const Output four = run_command(on(4, words("four", flags)));
  ASSERT_EQ(four.code, 0) << four.text;
  expect_close("four", "one", 3);
  expect_same_losses("four", "one");
}

TEST_F(CliRanks, resumed_on_another_number__goes_on) {
  ASSERT_EQ(run_command(words("one", "--steps 6")).code, 0);
  ASSERT_EQ(run_command(on(2, words("run", "--steps 2 --shard optimizer"))).code, 0);
  Output more = run_command(words("run", "--resume --steps 4"));
  ASSERT_EQ(more.code, 0) << more.text;
  more = run_command(on(4, words("run", "--resume --steps 6 --shard weights")));
  ASSERT_EQ(more.code, 0) << more.text;
  expect_close("run", "one", 6);
}

TEST_F(CliRanks, same_number_twice__is_the_same_bits_interrupted_or_not) {
  ASSERT_EQ(run_command(on(2, words("whole", "--steps 4"))).code, 0);
  ASSERT_EQ(run_command(on(2, words("parts", "--steps 2"))).code, 0);
  ASSERT_EQ(run_command(on(2, words("parts", "--resume --steps 4"))).code, 0);
  EXPECT_EQ(state("whole", 4), state("parts", 4));
}

TEST_F(CliRanks, batch_that_does_not_divide__is_refused_once) {
  const Output three = run_command(on(3, words("run", "--steps 4")));
  EXPECT_NE(three.code, 0);
  const std::string line =
      "batch: every rank must get as many images of a micro-batch (8 / 1 on 3)";
  EXPECT_NE(three.text.find(line), three.text.npos) << three.text;
  EXPECT_EQ(three.text.find(line), three.text.rfind(line)) << three.text;
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was begun";
}

TEST_F(CliRanks, loss_that_is_not_finite__is_one_error_of_all) {
  const Output two = run_command(
      on(2, words("run", "--steps 40 --lr 1e30 --clip 0 --shard weights --accumulation 2")));
  EXPECT_NE(two.code, 0) << two.text;
  const std::string line = "train: loss and gradients must be finite (step ";
  EXPECT_NE(two.text.find(line), two.text.npos) << two.text;
  EXPECT_EQ(two.text.find(line), two.text.rfind(line)) << two.text;
}

TEST_F(CliRanks, settings_that_differ__are_refused_with_the_difference) {
  const Output two = run_command(str(on(1, words("run", "--steps 4 --lr 0.001")), " : -n 1 ",
                                     words("run", "--steps 4 --lr 0.002")));
  EXPECT_NE(two.code, 0);
  EXPECT_NE(two.text.find("lr"), two.text.npos) << two.text;
  EXPECT_NE(two.text.find("0.002"), two.text.npos) << two.text;
}

TEST_F(CliRanks, rank_that_is_killed__ends_all_and_the_checkpoint_is_whole) {
  const std::string run = words("run", "--steps 100000 --checkpoint-every 5 --keep 2");
  // when there is a checkpoint
  const Output two = run_command(
      str("{ ", on(2, run), " & p=$!; for i in $(seq 300); do ls '", out("run"),
          "'/state-* >/dev/null 2>&1 && break; sleep 0.1; done; ",
          "k=$(pgrep -P $p -x ebb | tail -1); [ -n \"$k\" ] || k=$p; kill -KILL $k; wait $p; }"));
  EXPECT_NE(two.code, 0) << two.text;
  EXPECT_NE(two.text.find("ranks: rank "), two.text.npos) << two.text;
  const auto steps = train::checkpoint_steps(out("run"));
  ASSERT_FALSE(steps.empty());
  const Output on_with = run_command(
      on(2, words("run", str("--resume --steps ", steps.back() + 2, " --checkpoint-every 0"))));
  EXPECT_EQ(on_with.code, 0) << on_with.text;
}

TEST_F(CliRanks, signal_to_one__ends_all_behind_one_step) {
  const std::string run = words("run", "--steps 100000 --checkpoint-every 0");
  const Output two = run_command(
      str("{ ", on(2, run), " & p=$!; for i in $(seq 300); do grep -q loss '", out("run"),
          "'/metrics.jsonl 2>/dev/null && break; sleep 0.1; done; ",
          "k=$(pgrep -P $p -x ebb | tail -1); [ -n \"$k\" ] || k=$p; kill -TERM $k; wait $p; }"));
  EXPECT_NE(two.text.find("stopped by signal 15"), two.text.npos) << two.text;
  EXPECT_EQ(train::checkpoint_steps(out("run")).size(), 1u);
}

}  // namespace
}  // namespace ebb
