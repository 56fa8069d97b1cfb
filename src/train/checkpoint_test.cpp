// Checkpoints: what is in the files, which one is found, and what happens to damaged ones.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/random.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "support/files.h"
#include "train/model_weights.h"
#include "train/run_folder.h"

namespace ebb::train {
namespace {

using testing::expect_error;
using testing::Folder;
namespace fs = std::filesystem;

std::vector<nn::Weight> weights() {
  return {{"conv.weight", {4, 3, 3, 2}, {.init = "normal", .channels_last = true}, true},
          {"conv.bias", {4}, {}, true},
          {"freqs", {5}, {.init = "normal"}, false},
          {"qkv.weight", {12, 5}, {.init = "normal", .qkv_interleave = 2}, true}};
}

// A state in which every tensor is different.
TrainState state_at(int64_t step) {
  TrainState s = initial_state(weights(), 1);
  s.step = step;
  uint64_t seed = static_cast<uint64_t>(step) * 100;
  for (auto& [name, t] : s.tensors) fill_normal({.seed = seed++}, 0, t.span<float>());
  return s;
}

std::vector<float> values(const Tensor& t) {
  const auto v = t.span<float>();
  return {v.begin(), v.end()};
}

const RunInfo info{.model = "toy",
                   .model_config = R"({"width": 8})",
                   .diffusion_config = R"({"precond": "edm"})",
                   .train_config = "{}",
                   .class_names = {"cat", "\"dog\""}};

TEST(checkpoint, initial_state__averages_are_the_weights_and_moments_zero) {
  const TrainState s = initial_state(weights(), 3);
  EXPECT_EQ(s.tensors.size(), 13u);
  EXPECT_EQ(values(s.tensors.at("ema.conv.weight")), values(s.tensors.at("conv.weight")));
  EXPECT_NE(s.tensors.at("ema.conv.weight").raw(), s.tensors.at("conv.weight").raw());
  EXPECT_EQ(values(s.tensors.at("v.conv.bias")), std::vector<float>(4));
  EXPECT_NE(values(s.tensors.at("freqs")), std::vector<float>(5));
}

TEST(checkpoint, halves_that_a_kill_left__go_with_the_next_start) {
  const Folder folder;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(folder.path(), state_at(step), {info, 0});
  fs::remove(state_file(folder.path(), 4));  // killed between the two files
  fs::remove(model_file(folder.path(), 1));  // killed while it deleted
  fs::remove(state_file(folder.path(), 2));  // deleted to save room
  fs::create_directories(folder / "samples");
  testing::put_file(sample_file(folder.path(), 3) + ".tmp-123", "half a picture");
  const auto file_name = [](const std::string& path) { return fs::path(path).filename().string(); };
  const std::string newest = testing::file_bytes(model_file(folder.path(), 4));
  std::vector<std::string> said;
  const auto say = [&](std::string_view line) { said.emplace_back(line); };
  begin_run_folder(folder.path(), false, say);
  EXPECT_FALSE(fs::exists(model_file(folder.path(), 4)));
  EXPECT_EQ(testing::file_bytes(folder / "model-00000004.without-state.safetensors"), newest);
  EXPECT_FALSE(fs::exists(state_file(folder.path(), 1)));
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0],
            "model-00000004.safetensors has no training state to go on from; it is kept as "
            "model-00000004.without-state.safetensors, and the run goes on from step 3");
  EXPECT_EQ(said[1], "deleted " + file_name(state_file(folder.path(), 1)) +
                         ", the state of a model that is gone");
  EXPECT_TRUE(fs::exists(model_file(folder.path(), 2)));
  EXPECT_EQ(checkpoint_steps(folder.path()), std::vector<int64_t>{3});
  EXPECT_TRUE(fs::is_empty(folder / "samples"));
  save_checkpoint(folder.path(), state_at(4), {info, 0});
  fs::remove(state_file(folder.path(), 4));  // killed there again: none replaces the other
  begin_run_folder(folder.path(), false, say);
  EXPECT_EQ(testing::file_bytes(folder / "model-00000004.without-state.safetensors"), newest);
  EXPECT_TRUE(fs::exists(folder / "model-00000004.without-state-2.safetensors"));
  fs::remove(state_file(folder.path(), 3));  // models alone are left: all are a user's
  begin_run_folder(folder.path(), false, say);
  EXPECT_TRUE(fs::exists(model_file(folder.path(), 3)));
}

TEST(checkpoint, model_file__has_the_averages_by_plain_names_in_the_layout_of_files) {
  const Folder folder;
  const TrainState s = state_at(1000);
  const std::string path = save_checkpoint(folder.path(), s, {info, 0});
  EXPECT_EQ(path, folder / "model-00001000.safetensors");
  const auto file = io::TensorFile::open(path);
  ASSERT_EQ(file.entries().size(), 4u);
  const Tensor t = file.load("conv.weight");
  EXPECT_EQ(t.shape(), (Shape{4, 2, 3, 3}));
  const auto got = t.span<float>(), here = s.tensors.at("ema.conv.weight").span<float>();
  // [o=1, i=1, kh=2, kw=0]
  EXPECT_EQ(got[((1 * 2 + 1) * 3 + 2) * 3 + 0], here[((1 * 3 + 2) * 3 + 0) * 2 + 1]);
  // Row 1 of v's second turn: [turn=1, v=2, row=1] there, [v=2, turn=1, row=1] here.
  const auto rows = file.load("qkv.weight").span<float>();
  EXPECT_EQ(rows[((1 * 3 + 2) * 2 + 1) * 5 + 4],
            s.tensors.at("ema.qkv.weight").span<float>()[((2 * 2 + 1) * 2 + 1) * 5 + 4]);
  EXPECT_EQ(values(file.load("freqs")), values(s.tensors.at("freqs")));
  const auto read = read_model_info(path);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, 1000);
  EXPECT_EQ(read->run.model, "toy");
  EXPECT_EQ(read->run.diffusion_config, info.diffusion_config);
  EXPECT_EQ(read->run.class_names, info.class_names);
}

TEST(checkpoint, state__comes_back_to_the_bit) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(5), {info, 0});
  const TrainState s = state_at(7);
  save_checkpoint(folder.path(), s, {info, 0});
  const TrainState back = load_state(folder.path(), weights());
  EXPECT_EQ(back.step, 7);
  ASSERT_EQ(back.tensors.size(), s.tensors.size());
  for (const auto& [name, t] : s.tensors) {
    EXPECT_EQ(back.tensors.at(name).type(), t.type()) << name;
    EXPECT_EQ(values(back.tensors.at(name)), values(t)) << name;
  }
}

TEST(checkpoint, hash__tells_contents_apart) {
  const Folder folder;
  const std::string one = folder / "one", other = folder / "other";
  for (const std::string& f : {one, other}) fs::create_directory(f);
  save_checkpoint(one, state_at(5), {info, 0});
  save_checkpoint(other, state_at(5), {info, 0});
  EXPECT_EQ(checkpoint_hash(one, 5), checkpoint_hash(other, 5));
  TrainState changed = state_at(5);
  for (auto& [name, t] : changed.tensors)
    if (name.starts_with("m.")) (t = t.clone()).span<float>()[0] += 1;
  save_checkpoint(other, changed, {info, 0});
  EXPECT_NE(checkpoint_hash(one, 5), checkpoint_hash(other, 5));
  expect_error([&] { checkpoint_hash(one, 6); }, "checkpoint: cannot read it  ");
}

TEST(checkpoint, moment_not_finite__is_an_error_that_names_an_older_checkpoint) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(5), {info, 0});
  TrainState s = state_at(7);
  EXPECT_EQ(first_not_finite(s), "");
  s.tensors.at("v.conv.weight").span<float>()[3] = std::nanf("");
  EXPECT_EQ(first_not_finite(s), "v.conv.weight has nan as element 3");
  save_checkpoint(folder.path(), s, {info, 0});
  const std::string error = testing::error_of([&] { load_state(folder.path(), weights()); });
  EXPECT_NE(error.find("must be finite (v.conv.weight has nan"), std::string::npos) << error;
  EXPECT_NE(error.find("the checkpoint of step 5 is whole"), std::string::npos) << error;
}

TEST(checkpoint, keep__deletes_all_but_the_newest) {
  const Folder folder;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(folder.path(), state_at(step), {info, 2});
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(folder.files(), 4u);
}

TEST(checkpoint, find__takes_folders_and_files) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(99), {info, 0});
  const std::string newest = save_checkpoint(folder.path(), state_at(123456789), {info, 0});
  EXPECT_EQ(find_model_file(folder.path()), newest);
  EXPECT_EQ(find_model_file(folder.path(), 99), folder / "model-00000099.safetensors");
  EXPECT_EQ(find_model_file(newest), newest);
  testing::put_file(folder / "a.pt", "x");  // shorter than any name of ours
  EXPECT_EQ(find_model_file(folder / "a.pt"), folder / "a.pt");
  expect_error([&] { find_model_file(folder.path(), 98); }, "none of step 98");
  expect_error([&] { find_model_file(folder / "state-00000099.safetensors"); },
               "give model-00000099.safetensors");
  expect_error([&] { find_model_file(folder / "nothing"); }, "no such file or folder");
  fs::create_directory(folder / "empty");
  expect_error([&] { find_model_file(folder / "empty"); }, "no model-<step>.safetensors");
}

TEST(checkpoint, damaged_and_foreign_files__are_errors) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(8), {info, 0});
  const std::string model = model_file(folder.path(), 8), state = state_file(folder.path(), 8);
  const std::string bytes = testing::file_bytes(state);
  fs::resize_file(state, bytes.size() - 4);
  expect_error([&] { load_state(folder.path(), weights()); }, "must end within the data");
  fs::resize_file(state, 100);
  expect_error([&] { load_state(folder.path(), weights()); }, "header must end within the file");
  fs::resize_file(state, 0);
  expect_error([&] { load_state(folder.path(), weights()); }, "must have at least 8 bytes");
  fs::copy_file(model, state, fs::copy_options::overwrite_existing);
  expect_error([&] { load_state(folder.path(), weights()); }, "not a training state");
  testing::put_file(state, bytes);
  EXPECT_EQ(load_state(folder.path(), weights()).step, 8);
  // another network
  std::vector<nn::Weight> other = weights();
  other[1].shape = {5};
  expect_error([&] { load_state(folder.path(), other); }, "conv.bias: expected [5]");
  // a file of others is no error: its model is recognised by its tensors
  const Tensor t(DType::f32, {3});
  const io::NamedTensor foreign[] = {{"a", t}};
  io::write_safetensors(folder / "other.safetensors", foreign);
  EXPECT_FALSE(read_model_info(folder / "other.safetensors"));
  expect_error([&] { read_model_info(state); }, "not a model");
}

TEST(checkpoint, damaged_newest__names_an_older_one_that_is_intact) {
  const Folder folder;
  for (const int64_t step : {1, 2, 3, 4}) save_checkpoint(folder.path(), state_at(step), {info, 0});
  const auto damage = [&](const std::string& file) {
    fs::resize_file(file, fs::file_size(file) - 4);
  };
  const auto resume = [&] { load_state(folder.path(), weights()); };
  damage(model_file(folder.path(), 3));
  damage(state_file(folder.path(), 4));
  const std::string advice =
      "; the checkpoint of step 2 is whole: move model-00000004.safetensors and "
      "state-00000004.safetensors to another folder to go on from there";
  expect_error(resume, advice);
  EXPECT_EQ(last_model_info(folder.path()).step, 4);  // whose state is damaged
  damage(model_file(folder.path(), 4));
  expect_error([&] { last_model_info(folder.path()); }, advice);
  const auto older = [&](const std::string& path, int64_t damaged) {
    return older_model(path, model_file(folder.path(), damaged),
                       [](const std::string& file) { load_model_weights(file, weights()); });
  };
  EXPECT_EQ(older(folder.path(), 4), model_file(folder.path(), 2));
  EXPECT_EQ(older(folder.path(), 1), "");
  EXPECT_EQ(older(model_file(folder.path(), 4), 4), "");
  // as it says: that of step 3 is the newest then
  fs::remove(model_file(folder.path(), 4));
  fs::remove(state_file(folder.path(), 4));
  expect_error(resume, "; the checkpoint of step 2 is whole: move model-00000003");
  fs::remove(state_file(folder.path(), 3));
  EXPECT_EQ(load_state(folder.path(), weights()).step, 2);
}

TEST(checkpoint, errors_of_older_ones_too__name_none) {
  const Folder folder;
  for (const int64_t step : {1, 2}) save_checkpoint(folder.path(), state_at(step), {info, 0});
  std::vector<nn::Weight> other = weights();
  other[1].shape = {5};
  const std::string error = testing::error_of([&] { load_state(folder.path(), other); });
  EXPECT_NE(error.find("conv.bias: expected [5]"), std::string::npos) << error;
  EXPECT_EQ(error.find("is whole"), std::string::npos) << error;
}

TEST(checkpoint, weights_larger_than_memory__are_refused) {
  const Folder folder;
  const std::string file = folder / "large.safetensors";
  constexpr int64_t elements = int64_t{1} << 40;
  std::string header = str(R"({"w": {"dtype": "F32", "shape": [)", elements,
                           R"(], "data_offsets": [0, )", 4 * elements, "]}}");
  header.resize(128, ' ');
  testing::put_file(file, std::string("\x80\0\0\0\0\0\0\0", 8) + header);
  std::error_code error;
  fs::resize_file(file, 136 + 4 * elements, error);  // with a hole
  if (error) GTEST_SKIP() << "no file may be so large here: " << error.message();
  expect_error(
      [&] {
        load_model_weights(file, {{"w", {elements}, {}, true}});
      },
      "checkpoint: weights must fit into the machine's memory (4398046 MB, ");
}

TEST(checkpoint, half_a_checkpoint__is_not_resumed_from) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(1), {info, 0});
  save_checkpoint(folder.path(), state_at(2), {info, 0});
  fs::remove(state_file(folder.path(), 2));
  EXPECT_EQ(load_state(folder.path(), weights()).step, 1);
  EXPECT_EQ(find_model_file(folder.path()), model_file(folder.path(), 2));
  fs::remove(state_file(folder.path(), 1));
  expect_error([&] { load_state(folder.path(), weights()); },
               "resume: the model's training state is missing; another --out keeps the model, "
               "--overwrite deletes it and starts anew  " +
                   state_file(folder.path(), 2));
}

// A file-size limit stands for the full disk.
TEST(checkpoint, full_disk__is_an_error_and_leaves_the_old_checkpoint) {
  const Folder folder;
  const TrainState old = state_at(1);
  save_checkpoint(folder.path(), old, {info, 1});
  const auto size = [&](const std::string& file) { return fs::file_size(file); };
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  // room for the model but not for the state
  const rlimit low{size(model_file(folder.path(), 1)) + 8, before.rlim_max};
  ASSERT_LT(low.rlim_cur, size(state_file(folder.path(), 1)));
  setrlimit(RLIMIT_FSIZE, &low);
  const std::string error = testing::error_of([&] {
    save_checkpoint(folder.path(), state_at(2), {info, 1});
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(error.find("cannot write"), std::string::npos) << error;
  EXPECT_EQ(folder.files(), 2u);
  EXPECT_EQ(values(load_state(folder.path(), weights()).tensors.at("conv.weight")),
            values(old.tensors.at("conv.weight")));
}

TEST(run_folder, of_a_run_that_goes_on__is_refused) {
  const Folder folder;
  testing::put_file(folder / "state-00000009.safetensors.tmp-123", "half");
  save_checkpoint(folder.path(), state_at(8), {info, 0});
  RunLock run = begin_run_folder(folder.path(), false, {});
  testing::put_file(folder / "state-00000009.safetensors.tmp-123", "half");
  const std::string_view rule = "another process is training in the folder";
  for (const bool overwrite : {false, true}) {
    expect_error([&] { check_run_folder(folder.path(), !overwrite, overwrite); }, rule);
    expect_error([&] { begin_run_folder(folder.path(), overwrite, {}); }, rule);
  }
  EXPECT_TRUE(fs::exists(folder / "state-00000009.safetensors.tmp-123"));
  run = RunLock();
  check_run_folder(folder.path(), true, false);
}

// Of a run whose model files are of another form.
const RunInfo other_form{.model = "toy",
                         .model_config = "{}",
                         .diffusion_config = "{}",
                         .train_config = "{}",
                         .class_names = {},
                         .task = "another form"};

void write_adapter(const std::string& path, const TrainState&,
                   const std::map<std::string, std::string>& metadata) {
  io::write_safetensors(path, {}, metadata);
}

TEST(checkpoint, of_another_form__its_files_are_good_without_each_other) {
  const Folder folder;
  const auto broken = [](const std::string&, const TrainState&, const auto&) {
    fail("beyond f16");
  };
  save_checkpoint(folder.path(), state_at(1), {other_form, 0, write_adapter});
  expect_error(
      [&] {
        save_checkpoint(folder.path(), state_at(2), {other_form, 0, broken});
      },
      "beyond f16; the state of step 2 is saved");
  fs::create_directory(state_file(folder.path(), 3));  // it cannot be written
  EXPECT_THROW(save_checkpoint(folder.path(), state_at(3), {other_form, 0, write_adapter}), Error);
  EXPECT_TRUE(fs::exists(model_file(folder.path(), 3)));
  fs::remove(state_file(folder.path(), 3));
  fs::remove(model_file(folder.path(), 1));  // moved to where adapters are used
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(last_model_info(folder.path()).run.task, "another form");
  const TrainState want = state_at(2);
  const NamedTensors frozen{{"freqs", want.tensors.at("freqs")}};
  const TrainState loaded = load_state(folder.path(), weights(), frozen);
  EXPECT_EQ(loaded.step, 2);
  for (const auto& [name, t] : want.tensors)
    EXPECT_EQ(values(loaded.tensors.at(name)), values(t)) << name;
  begin_run_folder(folder.path(), false, {});
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{1, 2}));
}

TEST(checkpoint, of_another_form__a_state_that_cannot_be_read_stays_and_is_the_error) {
  const Folder folder;
  for (const int64_t step : {1, 2})
    save_checkpoint(folder.path(), state_at(step), {other_form, 0, write_adapter});
  const std::string state = state_file(folder.path(), 2);
  fs::remove(model_file(folder.path(), 2));  // moved to where adapters are used
  fs::resize_file(state, 100);
  const NamedTensors frozen{{"freqs", state_at(2).tensors.at("freqs")}};
  begin_run_folder(folder.path(), false, {});
  const auto resume = [&] { load_state(folder.path(), weights(), frozen); };
  for (const auto& f : {std::function<void()>(resume),
                        std::function<void()>([&] { last_model_info(folder.path()); })}) {
    const std::string error = testing::error_of(f);
    EXPECT_NE(error.find(state), std::string::npos) << error;
    EXPECT_NE(error.find("the checkpoint of step 1 is whole: move state-00000002.safetensors to "),
              std::string::npos)
        << error;
  }
  expect_error([&] { check_run_folder(folder.path(), false, false); }, "holds a run of 2 steps");
  EXPECT_EQ(fs::file_size(state), 100u);
  fs::rename(state, folder / "mine");  // as it says
  EXPECT_EQ(load_state(folder.path(), weights(), frozen).step, 1);
}

TEST(checkpoint, of_another_form__the_second_file_is_tried_whatever_is_thrown) {
  const Folder folder;
  const auto lacks_memory = [](const std::string&, const TrainState&, const auto&) {
    throw std::bad_alloc();
  };
  const auto save = [&](int64_t step, const WriteModel& write) {
    return testing::error_of([&] {
      save_checkpoint(folder.path(), state_at(step), {other_form, 0, write});
    });
  };
  const std::string memory = save(1, lacks_memory);
  EXPECT_NE(memory.find("bad_alloc; the state of step 1 is saved"), std::string::npos) << memory;
  EXPECT_TRUE(fs::exists(state_file(folder.path(), 1)));
  fs::create_directory(state_file(folder.path(), 2));  // it cannot be written
  const std::string both = save(2, lacks_memory);
  EXPECT_NE(both.find(state_file(folder.path(), 2)), std::string::npos) << both;
  EXPECT_NE(both.find("nor can its model file be written: std::bad_alloc"), std::string::npos)
      << both;
  const std::string one = save(2, write_adapter);
  EXPECT_NE(one.find("the model of step 2 is saved, without its state"), std::string::npos) << one;
}

TEST(checkpoint, of_another_form__what_resumes_is_written_first) {
  const Folder folder;
  bool had_state = false;
  const auto write = [&](const std::string& path, const TrainState& s, const auto& metadata) {
    had_state = fs::exists(state_file(folder.path(), s.step));
    write_adapter(path, s, metadata);
  };
  save_checkpoint(folder.path(), state_at(1), {other_form, 0, write});
  EXPECT_TRUE(had_state);
}

TEST(run_folder, overwritten__keeps_a_picture_that_is_no_grid_of_samples) {
  const Folder folder;
  const Tensor picture(DType::u8, {2, 2, 3});
  const std::string file = folder / "samples.png";
  const std::map<std::string, std::string> text = {{"Software", "ebb 0.1"}, {"checkpoint", "run"}};
  for (const bool own : {false, true}) {
    io::write_picture(file, picture, own ? text : std::map<std::string, std::string>{});
    std::vector<std::string> said;
    begin_run_folder(folder.path(), true, [&](std::string_view line) { said.emplace_back(line); });
    EXPECT_EQ(fs::exists(file), !own);
    EXPECT_EQ(said.size(), own ? 0u : 1u);
  }
}

TEST(run_folder, of_an_earlier_run__is_not_overwritten_by_accident) {
  const Folder folder;
  expect_error([&] { check_run_folder(folder.path(), true, false); },
               "resume: there is no run in the folder");
  check_run_folder(folder / "new/deep", false, false);
  EXPECT_FALSE(fs::exists(folder / "new"));
  begin_run_folder(folder / "new/deep", false, {});
  EXPECT_TRUE(fs::is_directory(folder / "new/deep"));
  save_checkpoint(folder.path(), state_at(8), {info, 0});
  testing::put_file(folder / "state-00000009.safetensors.tmp-123", "half");
  testing::put_file(folder / "notes.txt", "mine");
  testing::put_file(folder / "metrics.jsonl", "{}");
  expect_error([&] { check_run_folder(folder.path(), false, false); }, "holds a run of 8 steps");
  check_run_folder(folder.path(), true, false);
  begin_run_folder(folder.path(), false, {});
  EXPECT_FALSE(fs::exists(folder / "state-00000009.safetensors.tmp-123"));
  EXPECT_EQ(checkpoint_steps(folder.path()).size(), 1u);
  check_run_folder(folder.path(), false, true);
  EXPECT_FALSE(checkpoint_steps(folder.path()).empty());  // not before begin_run_folder()
  begin_run_folder(folder.path(), true, {});
  EXPECT_TRUE(checkpoint_steps(folder.path()).empty());
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(folder / "notes.txt"));
  testing::put_file(folder / "metrics.jsonl", "{}");
  expect_error([&] { check_run_folder(folder.path(), false, false); }, "without a checkpoint");
  testing::put_file(folder / "file", "");
  expect_error([&] { check_run_folder(folder / "file", false, false); }, "cannot make the folder");
}

TEST(run_folder, with_models_of_an_earlier_run__is_no_place_for_a_new_one) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(8), {info, 0});
  fs::remove(state_file(folder.path(), 8));
  expect_error([&] { check_run_folder(folder.path(), false, false); },
               "out: the folder holds a model of step 8 without its training state; another --out "
               "keeps it, --overwrite deletes it and starts anew  " +
                   folder.path());
  check_run_folder(folder.path(), false, true);
}

TEST(run_folder, config_that_is_damaged__is_not_replaced) {
  const Folder folder;
  save_checkpoint(folder.path(), state_at(8), {info, 0});
  check_run_folder(folder.path(), true, false);  // there need be none
  testing::put_file(folder / "config.json", "{\"train\": {}}\n");
  check_run_folder(folder.path(), true, false);
  for (const char* broken : {"{\"train\": {", "[1]", ""}) {
    testing::put_file(folder / "config.json", broken);
    const std::string error =
        testing::error_of([&] { check_run_folder(folder.path(), true, false); });
    EXPECT_TRUE(error.starts_with("config: ")) << error;
    EXPECT_TRUE(
        error.ends_with("; move it away to go on, as the run's settings are in its checkpoint  " +
                        (folder / "config.json")))
        << error;
    check_run_folder(folder.path(), false, true);
  }
}

}  // namespace
}  // namespace ebb::train
