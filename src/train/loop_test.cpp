// The training loop on a toy: learning, resuming to the bit, stopping, and numbers gone wrong.
#include "train/loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/toy_run.h"
#include "train/run_folder.h"

namespace ebb::train {
namespace {

using testing::checkpoint_bytes;
using testing::expect_error;
using testing::Folder;
using testing::metrics;
using testing::toy_batch;
using testing::toy_config;
using testing::toy_job;

using testing::cpu;

TEST(train, a_toy__learns_and_leaves_its_files) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  c.steps = 300;
  c.checkpoint_every = 100;
  c.log_every = 50;
  TrainJob job = toy_job(c);
  std::vector<std::string> lines;
  std::vector<int64_t> sampled;
  job.config.sample_every = 150;
  job.hooks.log = [&](std::string_view line) { lines.emplace_back(line); };
  job.hooks.sample = [&](const TrainState& s, const auto&) { sampled.push_back(s.step); };
  job.hooks.evaluate = [](const TrainState& s, MetricsLog& log) {
    const NamedNumber fid[] = {{"eval/fid", 3.5}};
    log.add(s.step, fid);
  };
  const TrainResult r = train(std::move(job), cpu());
  EXPECT_EQ(r.step, 300);
  EXPECT_EQ(r.why, TrainResult::Stop::steps);
  EXPECT_EQ(r.checkpoint, folder / "model-00000300.safetensors");
  const auto m = metrics(folder.path());
  ASSERT_EQ(m.size(), 303u);
  EXPECT_EQ(m[0]["step"], 1);
  EXPECT_EQ(m[302]["eval/fid"], 3.5);
  EXPECT_LT(m[301]["loss"].get<double>(), 0.3 * m[0]["loss"].get<double>());
  for (const char* key : {"lr", "grad_norm", "images_per_second", "seconds"})
    EXPECT_TRUE(m[5][key].is_number()) << key;
  EXPECT_EQ(sampled, (std::vector<int64_t>{150, 300}));
  const auto line = [&](std::string_view part) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& l) { return l.find(part) != std::string::npos; });
  };
  EXPECT_TRUE(line("step 300/300  loss ")) << lines[1];
  EXPECT_TRUE(line(" img/s  left ") && line("MB (plan ") && line("saved ")) << lines[1];
  EXPECT_NE(testing::file_bytes(folder / "config.json").find("\"lr\": 0.003"), std::string::npos);
}

TEST(train, resumed__gives_the_same_bits_as_in_one_go) {
  for (const auto& [optimizer, micro_batches] :
       {std::pair{"adamw", 1}, {"adamw", 2}, {"lion", 1}, {"adafactor", 1}, {"prodigy", 2}}) {
    SCOPED_TRACE(optimizer);
    const Folder folder;
    TrainConfig whole = toy_config(folder / "whole"), broken = toy_config(folder / "broken");
    whole.accumulation = broken.accumulation = micro_batches;
    whole.optimizer = broken.optimizer = optimizer;
    train(toy_job(whole), cpu());
    int64_t steps = 0;
    TrainJob first = toy_job(broken);
    first.hooks.stop = [&] { return ++steps == 10; };
    EXPECT_EQ(train(std::move(first), cpu()).step, 10);
    broken.resume = true;
    EXPECT_EQ(train(toy_job(broken), cpu()).step, 20);
    const auto a = checkpoint_bytes(whole.out, 20), b = checkpoint_bytes(broken.out, 20);
    const Optimizer& o = find_optimizer(optimizer);
    size_t tensors = kept_of_run(o).size();
    for (const nn::Weight& w : toy_job(whole).weights) tensors += 2 + states_of(o, w).size();
    ASSERT_EQ(a.size(), tensors);
    for (const auto& [name, bytes] : a) EXPECT_EQ(b.at(name), bytes) << name;
    const auto ma = metrics(whole.out), mb = metrics(broken.out);
    ASSERT_EQ(ma.size(), 20u);
    ASSERT_EQ(mb.size(), 20u);
    for (size_t i = 0; i < 20; ++i)
      for (const char* key : {"step", "loss", "lr", "grad_norm"})
        EXPECT_EQ(ma[i][key], mb[i][key]) << i << key;
    EXPECT_GT(mb[15]["seconds"], mb[9]["seconds"]);
  }
}

TEST(train, killed_behind_its_checkpoint__goes_on_from_it_and_repeats_no_line) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  TrainJob job = toy_job(c);
  job.batches = [](int64_t) -> NextBatch {
    return [micro_batch = int64_t{0}]() mutable {
      require(micro_batch < 10, "the power fails");
      return toy_batch(micro_batch++, 8);
    };
  };
  expect_error([&] { train(std::move(job), cpu()); }, "the power fails");
  EXPECT_EQ(checkpoint_steps(c.out), std::vector<int64_t>{7});
  c.resume = true;
  train(toy_job(c), cpu());
  const auto m = metrics(c.out);
  ASSERT_EQ(m.size(), 20u);
  for (size_t i = 0; i < m.size(); ++i) EXPECT_EQ(m[i]["step"], i + 1);
}

TEST(train, checkpoint__has_the_metrics_before_it_in_their_file) {
  const Folder folder;
  TrainJob job = toy_job(toy_config(folder.path()));
  job.config.log_every = 1000;
  std::vector<size_t> lines;
  job.hooks.evaluate = [&](const TrainState&, MetricsLog&) {  // right behind the checkpoint
    lines.push_back(metrics(folder.path()).size());
  };
  train(std::move(job), cpu());
  EXPECT_EQ(lines, (std::vector<size_t>{7, 14, 20}));
}

TEST(train, resumed_behind_a_step_whose_picture_is_missing__makes_it) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  c.sample_every = 7;
  c.steps = 14;
  std::vector<int64_t> sampled;
  const auto go = [&](int64_t steps) {
    TrainJob job = toy_job(c);
    job.config.steps = steps;
    job.hooks.sample = [&](const TrainState& s, const auto&) {
      sampled.push_back(s.step);
      std::filesystem::create_directories(folder / "samples");
      testing::put_file(sample_file(c.out, s.step), "a picture");
    };
    train(std::move(job), cpu());
  };
  go(14);
  std::filesystem::remove(sample_file(c.out, 14));
  c.resume = true;
  go(16);
  EXPECT_EQ(sampled, (std::vector<int64_t>{7, 14, 14, 16}));
  go(16);  // nothing to do, and nothing is missing
  std::filesystem::remove(sample_file(c.out, 16));
  go(16);
  EXPECT_EQ(sampled, (std::vector<int64_t>{7, 14, 14, 16, 16}));
}

TEST(train, resumed_with_all_its_steps__leaves_the_folder_as_it_is) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  train(toy_job(c), cpu());
  const auto files = [&] {
    std::map<std::string, std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(folder.path()))
      out[e.path().filename()] =
          str(e.last_write_time().time_since_epoch().count(), ' ', e.file_size());
    return out;
  };
  const auto before = files();
  EXPECT_GE(before.size(), 5U);  // model, state, metrics, config, run, events
  c.resume = true;
  std::string said;
  TrainJob job = toy_job(c);
  job.hooks.log = [&](std::string_view line) { said += line; };
  const TrainResult r = train(std::move(job), cpu());
  EXPECT_NE(said.find("nothing to do: the run has 20 steps"), std::string::npos) << said;
  EXPECT_EQ(r.step, 20);
  EXPECT_EQ(files(), before);
}

TEST(train, accumulation__sees_the_same_images_and_noise) {
  const Folder folder;
  TrainConfig one = toy_config(folder / "one"), two = toy_config(folder / "two");
  two.accumulation = 4;
  train(toy_job(one), cpu());
  train(toy_job(two), cpu());
  const auto a = metrics(one.out), b = metrics(two.out);
  // f32 rounding, through 20 steps of Adam
  for (size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4) << i;
}

TEST(train, signal__finishes_the_step_and_saves) {
  const Folder folder;
  std::signal(SIGINT, SIG_DFL);  // tests may run where it is ignored
  TrainJob job = toy_job(toy_config(folder.path()));
  job.batches = [](int64_t) -> NextBatch {
    return [micro_batch = int64_t{0}]() mutable {
      // twice, as `timeout -s INT` sends it: to the process and to its group
      for (int i = 0; i < 2 && micro_batch == 4; ++i) std::raise(SIGINT);
      return toy_batch(micro_batch++, 8);
    };
  };
  job.config.sample_every = 100;
  int64_t samples = 0;
  job.hooks.sample = [&](const TrainState&, const auto&) { ++samples; };
  const TrainResult r = train(std::move(job), cpu());
  EXPECT_EQ(samples, 0) << "none is due, and who stops a run wants its end";
  EXPECT_EQ(r.why, TrainResult::Stop::signal);
  EXPECT_EQ(r.signal, SIGINT);
  EXPECT_EQ(r.step, 5);
  EXPECT_EQ(checkpoint_steps(folder.path()), std::vector<int64_t>{5});
}

TEST(train, signal_before_the_first_step__ends_with_a_sentence_and_writes_nothing) {
  const Folder folder;
  std::signal(SIGINT, SIG_DFL);
  TrainJob job = toy_job(toy_config(folder / "run"));
  job.batches = [](int64_t) -> NextBatch {
    std::raise(SIGINT);
    return {};
  };
  EXPECT_EXIT(train(std::move(job), cpu()), ::testing::ExitedWithCode(128 + SIGINT),
              "train: interrupted before the first step; nothing was written\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(train, signal_in_the_last_step__leaves_a_finished_run) {
  const Folder folder;
  std::signal(SIGINT, SIG_DFL);
  TrainJob job = toy_job(toy_config(folder.path()));
  job.config.steps = 5;
  job.batches = [](int64_t) -> NextBatch {
    return [micro_batch = int64_t{0}]() mutable {
      if (micro_batch == 4) std::raise(SIGINT);
      return toy_batch(micro_batch++, 8);
    };
  };
  std::string said;
  job.hooks.log = [&](std::string_view line) { said = line; };
  const TrainResult r = train(std::move(job), cpu());
  EXPECT_EQ(r.why, TrainResult::Stop::steps);
  EXPECT_EQ(r.signal, 0);
  EXPECT_EQ(said, "signal 2 came at the end: the run is finished, with all its 5 steps");
}

TEST(train, damaged_metrics__are_kept_under_another_name) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  const std::string path = folder / "metrics.jsonl", side_stream = path + ".damaged";
  c.steps = 3;
  c.schedule = "constant";
  train(toy_job(c), cpu());
  const std::string whole = testing::file_bytes(path);
  const auto resume = [&](const std::string& bytes, int64_t steps) {
    testing::put_file(path, bytes);
    TrainConfig more = c;
    more.resume = true;
    more.steps = steps;
    std::string said;
    TrainJob job = toy_job(more);
    job.hooks.log = [&](std::string_view line) { said += str(line, '\n'); };
    train(std::move(job), cpu());
    return said;
  };
  // a crash cuts the last line short: nothing is lost with it
  EXPECT_EQ(resume(whole + R"({"step": 4, "lo)", 4).find("is damaged"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(side_stream));
  const std::string broken = whole.substr(0, whole.find('\n') + 1) + "x\n" + whole;
  const std::string said = resume(broken, 5);
  EXPECT_NE(said.find("metrics: line 2 of metrics.jsonl is damaged"), std::string::npos) << said;
  EXPECT_NE(said.find(side_stream), std::string::npos) << said;
  EXPECT_EQ(testing::file_bytes(side_stream), broken);
  EXPECT_EQ(metrics(c.out).size(), 2u);  // of steps 1 and 5
  // an evaluation of an earlier step may stand behind later ones
  const std::string late = whole + R"({"step":2,"eval/fid":3.5})" + "\n";
  EXPECT_EQ(resume(late, 5).find("is damaged"), std::string::npos);
  EXPECT_EQ(metrics(c.out)[3]["eval/fid"], 3.5);
  resume("no metrics at all", 6);
  EXPECT_EQ(testing::file_bytes(side_stream + "-2"), "no metrics at all");
  begin_run_folder(c.out, true, {});
  EXPECT_TRUE(std::filesystem::exists(side_stream));  // said to be kept
}

TEST(train, minutes__end_the_run_with_a_checkpoint) {
  const Folder folder;
  TrainConfig c = toy_config(folder.path());
  c.steps = 0;
  c.schedule = "constant";
  c.minutes = 0.1 / 60;
  const TrainResult r = train(toy_job(c), cpu());
  EXPECT_EQ(r.why, TrainResult::Stop::minutes);
  EXPECT_GT(r.step, 1);
  EXPECT_EQ(checkpoint_steps(c.out).back(), r.step);
}

TEST(train, network_that_is_too_large__is_refused_and_leaves_nothing) {
  const Folder folder;
  const auto device = std::make_shared<testing::FarDevice>(10000);
  TrainJob job = toy_job(toy_config(folder / "run"));
  job.batches = [](int64_t) -> NextBatch { throw Error("too late"); };
  expect_error([&] { train(std::move(job), {.device = device}); }, "plan: out of memory");
  EXPECT_EQ(folder.files(), 0u);
}

TEST(train, room_for_less_than_a_checkpoint__is_said_with_the_bytes) {
  const Folder folder;
  const auto gap = [&](int64_t side) {
    const nn::Weights weights{{.name = "w", .shape = {side, side}},
                              {.name = "frozen", .shape = {1 << 20, 1 << 20}, .trained = false}};
    return missing_room(folder.path(), weights, find_optimizer("adamw"));
  };
  EXPECT_EQ(gap(1), "");
  const std::string error = gap(1 << 24);  // a weight, its average and two moments
  EXPECT_EQ(error.find(str("the disk has too little room: a checkpoint takes at least ",
                           int64_t{1} << 52, " bytes, and ")),
            0u)
      << error;
  EXPECT_TRUE(error.ends_with(" are free  " + folder.path())) << error;
}

// What happens if step 10 meets `bad` in place of a pixel.
std::string error_with(const std::string& folder, float bad) {
  TrainJob job = toy_job(toy_config(folder));
  job.batches = [bad](int64_t) -> NextBatch {
    return [micro_batch = int64_t{0}, bad]() mutable {
      NamedTensors b = toy_batch(micro_batch++, 8);
      if (micro_batch == 10) b["images"].span<float>()[3] = bad;
      return b;
    };
  };
  return testing::error_of([&] { train(std::move(job), cpu()); });
}

TEST(train, loss_not_finite__names_step_and_tensor_and_keeps_the_state) {
  const Folder folder;
  const std::string a = folder / "nan", b = folder / "big", good = folder / "good";
  const std::string nan = error_with(a, std::nanf(""));
  EXPECT_NE(nan.find("(step 10: loss nan"), std::string::npos) << nan;
  EXPECT_NE(nan.find("first: input 'images'  f32[8,2,2,3] element 3"), std::string::npos) << nan;
  EXPECT_NE(nan.find("model-00000009.safetensors"), std::string::npos) << nan;
  const std::string big = error_with(b, std::numeric_limits<float>::max());
  EXPECT_NE(big.find("first: "), std::string::npos) << big;
  EXPECT_EQ(big.find("unknown"), std::string::npos) << big;
  EXPECT_EQ(big.find("input '"), std::string::npos) << big;
  // the state of step 9, the same as without the accident
  TrainConfig c = toy_config(good);
  TrainJob job = toy_job(c);
  job.config.checkpoint_every = 9;
  train(std::move(job), cpu());
  for (const std::string& out : {a, b})
    EXPECT_EQ(checkpoint_bytes(out, 9), checkpoint_bytes(good, 9));
  EXPECT_EQ(checkpoint_steps(a), (std::vector<int64_t>{7, 9}));
}

// A step so large that the weights become infinite although its loss was finite.
TEST(train, weights_not_finite__are_not_saved) {
  const Folder folder;
  TrainConfig c = toy_config(folder / "run");
  c.checkpoint_every = 1;
  train(toy_job(c), cpu());
  const std::vector<int64_t> whole = checkpoint_steps(c.out);
  TrainConfig huge = c;
  huge.resume = true;
  huge.steps = 30;
  huge.lr = 3e38;
  huge.weight_decay = 1;
  const std::string error = testing::error_of([&] { train(toy_job(huge), cpu()); });
  EXPECT_NE(error.find("must be finite"), std::string::npos) << error;
  EXPECT_NE(error.find("--lr"), std::string::npos) << error;
  EXPECT_EQ(error.find("go on with --resume"), std::string::npos) << error;
  for (const int64_t step : checkpoint_steps(c.out))
    EXPECT_EQ(first_not_finite(load_state(c.out, toy_job(c).weights)), "") << step;
  EXPECT_GE(checkpoint_steps(c.out).back(), whole.back());
}

// On a device with memory of its own: the same files as on the processor; a step is one launch.
TEST(train, far_device__leaves_the_same_bits_and_is_sent_no_zeros) {
  const Folder folder;
  const auto device = std::make_shared<testing::FarDevice>();
  train(toy_job(toy_config(folder / "far")), {.device = device});
  train(toy_job(toy_config(folder / "near")), cpu());
  for (const int64_t step : {7, 14, 20})
    EXPECT_EQ(checkpoint_bytes(folder / "far", step), checkpoint_bytes(folder / "near", step))
        << step;
  EXPECT_EQ(device->launches, 20);
  EXPECT_EQ(device->captures, 1);
  const auto longer = std::make_shared<testing::FarDevice>();
  TrainConfig twice = toy_config(folder / "longer");
  twice.steps = 40;
  train(toy_job(twice), {.device = longer});
  const int64_t steps = 2 * (longer->sent - device->sent), all = longer->sent;
  const int64_t weights = 4 * (2 * 16 * testing::toy_pixels + 16 + testing::toy_pixels);
  EXPECT_EQ(all - steps, 2 * weights);  // before the steps: weights and averages, no moments
  EXPECT_EQ(longer->transfers - device->transfers, 20);  // a step's inputs are one copy
}

// What is printed of memory is of the device: the plan's and the driver's are what it takes.
TEST(train, far_device__tells_what_the_plan_and_the_driver_take) {
  const Folder folder;
  const auto device = std::make_shared<testing::FarDevice>();
  device->driver = {.first = 3'000'000'000, .now = 5'000'000'000};
  TrainJob job = toy_job(toy_config(folder / "run"));
  std::string all;
  job.hooks.log = [&](std::string_view line) { all += str(line, '\n'); };
  train(std::move(job), {.device = device});
  EXPECT_NE(all.find("; a step needs 5000 MB (driver 5000 MB)"), std::string::npos) << all;
  EXPECT_NE(all.find("  memory 5000 MB (plan 0, driver 5000)"), std::string::npos) << all;
}

TEST(train, device_lost__ends_with_its_reason_and_a_checkpoint_to_go_on_from) {
  const Folder folder;
  const auto device = std::make_shared<testing::FarDevice>();
  TrainJob job = toy_job(toy_config(folder / "lost"));
  job.batches = [&](int64_t) -> NextBatch {
    return [&, micro_batch = int64_t{0}]() mutable {
      if (micro_batch == 16) device->fault = "far: the device failed";  // in step 17
      return toy_batch(micro_batch++, 8);
    };
  };
  expect_error([&] { train(std::move(job), {.device = device}); }, "far: the device failed");
  EXPECT_EQ(checkpoint_steps(folder / "lost"), (std::vector<int64_t>{7, 14}));
  TrainConfig again = toy_config(folder / "lost");
  again.resume = true;
  EXPECT_EQ(train(toy_job(again), cpu()).step, 20);
  train(toy_job(toy_config(folder / "unbroken")), cpu());
  EXPECT_EQ(checkpoint_bytes(folder / "lost", 20), checkpoint_bytes(folder / "unbroken", 20));
}

TEST(train, folder_with_a_run__is_refused_before_anything_is_touched) {
  const Folder folder;
  const TrainConfig c = toy_config(folder.path());
  train(toy_job(c), cpu());
  std::filesystem::create_directory(folder / "samples");
  const std::string kept[] = {"notes.txt", "metrics.jsonl.damaged", "samples/mine.png",
                              "samples/step-best.png"};
  for (const std::string& name : kept) testing::put_file(folder / name, "mine");
  for (const char* name : {"eval.json", "samples/step-00000020.png"})
    testing::put_file(folder / name, "of the run");
  const std::string before = testing::file_bytes(folder / "metrics.jsonl");
  expect_error([&] { train(toy_job(c), cpu()); }, "holds a run of 20 steps");
  EXPECT_EQ(testing::file_bytes(folder / "metrics.jsonl"), before);
  TrainConfig again = c;
  again.overwrite = true;
  again.steps = 5;
  EXPECT_EQ(train(toy_job(again), cpu()).step, 5);
  EXPECT_EQ(checkpoint_steps(c.out), std::vector<int64_t>{5});
  EXPECT_EQ(metrics(c.out).size(), 5u);
  for (const std::string& name : kept) EXPECT_EQ(testing::file_bytes(folder / name), "mine");
  for (const char* name : {"eval.json", "samples/step-00000020.png"})
    EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
}

TEST(train, data_set__feeds_images_numbers_and_labels) {
  const Folder folder;
  Tensor images(DType::u8, {10, 2, 2, 3});
  for (size_t i = 0; i < 120; ++i) images.span<uint8_t>()[i] = static_cast<uint8_t>(2 * i);
  const io::NamedTensor file[] = {{"images", images}};
  io::write_safetensors(folder / "data.safetensors", file);
  const auto data = open_dataset(folder / "data.safetensors");
  TrainConfig c = toy_config(folder / "run");
  c.accumulation = 2;
  TrainJob job = toy_job(c);
  job.batches = dataset_batches(*data, c);
  train(std::move(job), cpu());
  // parts number 5, 6: numbers go on across parts and steps
  const NextBatch next = dataset_batches(*data, c)(5);
  EXPECT_EQ(next().at("image").span<int64_t>()[0], 20);
  const NamedTensors b = next();
  EXPECT_EQ(b.at("image").span<int64_t>()[3], 27);
  EXPECT_EQ(b.at("images").shape(), (Shape{4, 2, 2, 3}));
}

}  // namespace
}  // namespace ebb::train
