// The view of running training: what it reads of runs' folders, and what it does not.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "apps/server/beneath.h"
#include "apps/server/training_log.h"
#include "base/lock.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"
#include "train/run_folder.h"

namespace ebb::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using server::ThinCurve;
using server::TrainingLog;

std::string line(int64_t step, double loss, double seconds = 0) {
  return train::metrics_json({.step = step, .loss = loss, .lr = 1e-3, .seconds = seconds}) + '\n';
}

std::string lines(int64_t first, int64_t last) {
  std::string out;
  out.reserve(static_cast<size_t>(last - first + 1) * 128);
  for (int64_t s = first; s <= last; ++s)
    out += line(s, 1 / std::sqrt(static_cast<double>(s)), 0.5 * static_cast<double>(s));
  return out;
}

void append(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

void put_run(const std::string& folder, const std::string& metrics) {
  put_file(folder + "/metrics.jsonl", metrics);
  put_file(folder + "/config.json", R"({"train":{"steps":200,"batch":8,"data":"/home/me"}})");
}

std::string picture() {
  const auto png = io::encode_png(gradient(6, 9, 3));
  return {png.begin(), png.end()};
}

class Log : public ::testing::Test {
 protected:
  // With a budget of this many bytes; what is left of it.
  int64_t read(int64_t budget = 1 << 30) {
    const auto folder = server::open_folder(folder_.path());
    log_.read(server::open_file_beneath(folder, "metrics.jsonl"), budget);
    return budget;
  }
  Folder folder_;
  const std::string file_ = folder_ / "metrics.jsonl";
  TrainingLog log_;
};

class Training : public ::testing::Test {
 protected:
  json list() const { return server_.get("/ebb/v1/training").json(); }
  json run(size_t index = 0) const {
    const json all = list()["runs"];
    return server_.get("/ebb/v1/training/" + all.at(index)["id"].get<std::string>()).json();
  }
  HttpAnswer picture_of(int64_t step) const {
    const std::string id = list()["runs"].at(0)["id"];
    return server_.get(str("/ebb/v1/training/", id, "/picture?step=", step));
  }
  // Before the server: it looks for new runs every few seconds.
  Folder folder_;
  const std::string root_ = folder_ / "runs", run_ = root_ + "/small";
  const bool made_ = fs::create_directories(root_) && (put_run(run_, lines(1, 100)), true);
  TestServer server_{folder_.path(), 1, [&](auto& o) { o.runs = {root_}; }};
};

}  // namespace

TEST(ThinCurve, million_values__few_parts_that_keep_the_mean_and_the_extremes) {
  ThinCurve c;
  double sum = 0, seen = 0;
  int64_t values = 0;
  for (int64_t s = 1; s <= 1'000'000; ++s) c.add(s, s == 777'777 ? 50 : 1 + 1e-6 * s);
  ASSERT_LE(c.parts().size(), ThinCurve::most);
  EXPECT_GT(c.parts().size(), ThinCurve::most / 2 - 1);
  for (const auto& p : c.parts()) {
    sum += p.mean * static_cast<double>(p.values), values += p.values;
    seen = std::max(seen, p.greatest);
    EXPECT_LE(p.least, p.mean);
  }
  EXPECT_EQ(values, 1'000'000);
  EXPECT_NEAR(sum / 1e6, 1.5 + 48.5e-6, 1e-4);
  EXPECT_EQ(seen, 50);
  EXPECT_EQ(c.parts().back().step, 1'000'000);
  c.add(5, 1e9);  // of a step before
  EXPECT_EQ(c.parts().back().step, 1'000'000);
}

TEST_F(Log, lines__are_read_once_and_half_of_one_waits_for_its_rest) {
  const std::string whole = line(3, 0.25, 1.5);
  put_file(file_, line(1, 1, 0.5) + line(2, 0.5, 1) + whole.substr(0, 20));
  const int64_t size = static_cast<int64_t>(fs::file_size(file_));
  EXPECT_EQ(read(1000), 1000 - size);
  EXPECT_EQ(log_.now().step, 2);
  EXPECT_EQ(log_.damaged(), 0);
  append(file_, whole.substr(20));
  EXPECT_EQ(read(1000), 1000 - static_cast<int64_t>(whole.size()) + 20);
  EXPECT_EQ(log_.now().step, 3);
  EXPECT_EQ(log_.now().loss, 0.25);
  EXPECT_DOUBLE_EQ(log_.seconds_a_step(), 0.5);
  EXPECT_EQ(read(1000), 1000);
  EXPECT_EQ(log_.loss().parts().size(), 3u);
}

TEST_F(Log, broken_lines__are_counted_and_passed_over) {
  put_file(file_, "no json\n" + line(1, 1) +
                      "[1]\n{\"loss\":2}\n{\"step\":\"2\"}\n{\"step\":-4}\n" +
                      "{\"step\":2,\"loss\":null}\n{\"step\":3,\"loss\":1e999}\n\n" +
                      std::string(100, '[') + "\n" + std::string(1 << 18, 'x') + "\n" +
                      "{\"step\":4,\"validation/loss\":0.75}\n" + line(5, 0.5) + "\xff\xfe\n");
  read();
  EXPECT_EQ(log_.damaged(), 9);
  EXPECT_EQ(log_.now().step, 5);
  EXPECT_EQ(log_.now().validation, 0.75);
  EXPECT_EQ(log_.now().validation_step, 4);
  ASSERT_EQ(log_.loss().parts().size(), 2u);
  EXPECT_EQ(log_.loss().parts()[1].step, 5);
}

TEST_F(Log, line_without_an_end__takes_no_memory) {
  put_file(file_, line(1, 1));
  for (int i = 0; i < 40; ++i) append(file_, std::string(1 << 18, 'x'));
  read();
  append(file_, "\n" + line(2, 0.5));
  read();
  EXPECT_EQ(log_.now().step, 2);
  EXPECT_EQ(log_.damaged(), 1);
}

TEST_F(Log, another_file__is_read_from_its_beginning) {
  put_file(file_, lines(1, 50));
  read();
  put_file(file_ + ".new", lines(1, 10));
  fs::rename(file_ + ".new", file_);
  read();
  EXPECT_EQ(log_.now().step, 10);
  put_file(file_, lines(1, 4));  // cut short
  read();
  EXPECT_EQ(log_.now().step, 4);
  fs::remove(file_);
  read();
  EXPECT_EQ(log_.now().step, 0);
  EXPECT_EQ(log_.changed(), 0);
}

TEST_F(Training, runs__are_listed_with_speed_and_loss) {
  const json all = list();
  EXPECT_EQ(all["folders"], 1);
  ASSERT_EQ(all["runs"].size(), 1u) << all.dump();
  const json one = run();
  EXPECT_EQ(one["name"], "small");
  EXPECT_EQ(one["step"], 100);
  EXPECT_EQ(one["steps"], 200);
  EXPECT_DOUBLE_EQ(one["loss"], 0.1);
  double sum = 0;
  for (int64_t s = 51; s <= 100; ++s) sum += 1 / std::sqrt(static_cast<double>(s));
  EXPECT_NEAR(one["smoothed_loss"], sum / 50, 1e-12);
  EXPECT_DOUBLE_EQ(one["steps_per_second"], 2);
  EXPECT_DOUBLE_EQ(one["images_per_second"], 16);
  EXPECT_EQ(one["curve"]["loss"].size(), 100u);
  EXPECT_EQ(one["curve"]["loss"][3], json::array({4, 0.5, 0.5, 0.5}));
  EXPECT_EQ(one["settings"]["batch"], 8);
  EXPECT_EQ(one.dump().find("/home/me"), std::string::npos);
  EXPECT_EQ(one.dump().find(folder_.path()), std::string::npos);
}

TEST_F(Training, facts__have_all_weights_and_those_that_are_trained) {
  put_file(run_ + "/run.json", R"({"parameters":12916228,"trained_parameters":344064})");
  const json facts = run()["facts"];
  EXPECT_EQ(facts["parameters"], 12916228);
  EXPECT_EQ(facts["trained_parameters"], 344064);
}

TEST_F(Training, state__is_running_while_the_lock_is_held) {
  EXPECT_FALSE(run()["running"]);
  EXPECT_EQ(run()["eta_s"], nullptr);
  {
    const Descriptor lock(::open(run_.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(try_lock(lock.number(), LockFor::writing));
    EXPECT_TRUE(run()["running"]);
    EXPECT_DOUBLE_EQ(run()["eta_s"], 50);
  }
  append(run_ + "/metrics.jsonl", line(101, 0.5, 50.5));  // the last that it wrote
  EXPECT_FALSE(run()["running"]);
}

TEST_F(Training, file_that_grows_without_a_lock__is_a_run_on_a_file_system_without_locks) {
  EXPECT_FALSE(run()["running"]);
  append(run_ + "/metrics.jsonl", line(101, 0.5, 50.5));
  EXPECT_TRUE(run()["running"]);
}

TEST_F(Training, look_at_the_lock__does_not_keep_a_run_from_beginning) {
  Descriptor look(::open(run_.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_TRUE(try_lock(look.number(), LockFor::reading));
  EXPECT_NE(error_of([&] { train::begin_run_folder(run_, false, {}); }).find("another process"),
            std::string::npos);
  const std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    look.close();
  });
  EXPECT_NO_THROW(train::begin_run_folder(run_, false, {}));
}

TEST_F(Training, many_lines__are_read_in_parts_into_few_points) {
  put_file(run_ + "/metrics.jsonl", lines(1, 250'000));
  json one;
  int looks = 0;
  do {
    const auto begin = std::chrono::steady_clock::now();
    one = run();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    ASSERT_LT(++looks, 1000);
  } while (one["read"] < 1.0);
  EXPECT_GT(looks, 2);
  EXPECT_EQ(one["step"], 250'000);
  EXPECT_LE(one["curve"]["loss"].size(), 400u);
  EXPECT_LT(one.dump().size(), 50'000u);
}

TEST_F(Training, folder_that_is_gone__404_and_no_runs) {
  const std::string id = list()["runs"][0]["id"];
  fs::remove_all(root_);
  const json gone = server_.get("/ebb/v1/training/" + id).json();
  EXPECT_EQ(gone.value("step", -1), 0) << gone.dump();  // it is looked for again in some seconds
  EXPECT_EQ(server_.get("/ebb/v1/training/0000000000000000").status, 404);
  const std::string none = folder_ / "none";
  EXPECT_NE(error_of([&] { server::TrainingRuns{{none}}; }).find("--runs is no folder  " + none),
            std::string::npos);
  EXPECT_TRUE(server::TrainingRuns{{folder_.path()}}.list()["runs"].empty());
}

TEST_F(Training, ids_and_steps__never_become_paths) {
  for (const char* id : {"..", "%2e%2e", "small", "..%2f..%2fetc", "%2fetc%2fpasswd", "."})
    EXPECT_EQ(server_.get(str("/ebb/v1/training/", id)).status, 404) << id;
  const std::string id = list()["runs"][0]["id"];
  for (const char* step : {"", "-1", "../../x", "1/../2", "99999999999999999999", "%2e%2e", "1.0"})
    EXPECT_EQ(server_.get("/ebb/v1/training/" + id + "/picture?step=" + step).status, 422) << step;
  EXPECT_EQ(picture_of(1).status, 404);
}

TEST_F(Training, pictures__are_those_of_samples_and_encoded_again) {
  for (const int64_t step : {20, 100, 60}) put_file(train::sample_file(run_, step), picture());
  put_file(run_ + "/samples/step-x.png", "x");
  put_file(run_ + "/samples/other.png", picture());
  const json samples = run()["samples"];
  ASSERT_EQ(samples.size(), 3u) << samples.dump();
  EXPECT_EQ(samples[0]["step"], 100);
  const auto shown = server_.get(samples[0]["url"].get<std::string>());
  EXPECT_EQ(shown.header("content-type"), "image/png");
  EXPECT_EQ(shown.header("x-content-type-options"), "nosniff");
  const std::vector<uint8_t> bytes(shown.body.begin(), shown.body.end());
  EXPECT_EQ(io::decode_image(bytes, "picture").shape(), (Shape{6, 9, 3}));
  put_file(train::sample_file(run_, 100), "<svg onload=alert(1)>");
  EXPECT_EQ(picture_of(100).status, 400);
}

TEST_F(Training, symbolic_links__are_not_followed) {
  const std::string outside = folder_ / "outside";
  put_run(outside, lines(1, 7));
  put_file(train::sample_file(outside, 5), picture());
  fs::create_directory_symlink(outside, root_ + "/link");
  fs::create_directories(root_ + "/metrics-link");
  fs::create_symlink(outside + "/metrics.jsonl", root_ + "/metrics-link/metrics.jsonl");
  EXPECT_EQ(server::TrainingRuns{{root_}}.list()["runs"].size(), 1u);
  fs::create_directories(run_ + "/samples");
  fs::create_symlink(train::sample_file(outside, 5), train::sample_file(run_, 5));
  EXPECT_TRUE(run()["samples"].empty());
  EXPECT_EQ(picture_of(5).status, 404);
  fs::remove_all(run_ + "/samples");
  fs::create_directory_symlink(outside + "/samples", run_ + "/samples");
  EXPECT_TRUE(run()["samples"].empty());
  EXPECT_EQ(picture_of(5).status, 404);
  // A folder that becomes a link behind the search.
  EXPECT_EQ(run()["step"], 100);
  fs::rename(run_, folder_ / "moved");
  fs::create_directory_symlink(outside, run_);
  EXPECT_EQ(run()["step"], 0);
  EXPECT_EQ(picture_of(5).status, 404);
}

TEST_F(Training, what_is_no_file__is_not_opened) {
  fs::create_directories(run_ + "/samples");
  ASSERT_EQ(::mkfifo(train::sample_file(run_, 5).c_str(), 0600), 0);
  fs::create_directories(train::sample_file(run_, 6));
  EXPECT_TRUE(run()["samples"].empty());
  EXPECT_EQ(picture_of(5).status, 404);
  EXPECT_EQ(picture_of(6).status, 404);
  const auto folder = server::open_folder(run_);
  EXPECT_TRUE(server::open_file_beneath(folder, "metrics.jsonl"));
  for (const char* path : {"../small/metrics.jsonl", "./metrics.jsonl", "/metrics.jsonl", "", ".",
                           "samples/../metrics.jsonl", "samples//x", "none/x"})
    EXPECT_FALSE(server::open_file_beneath(folder, path)) << path;
}

TEST(TrainingRoots, folder_of_a_run__and_folders_below_are_found_by_their_names) {
  const Folder folder;
  put_run(folder / "a/b/c", lines(1, 3));
  put_run(folder / "a/d", lines(1, 4));
  put_run(folder / "a/d/inner", lines(1, 5));  // of a run's folder nothing else is looked at
  put_run(folder / ".hidden", lines(1, 5));
  const auto names = [](const std::vector<std::string>& roots) {
    std::set<std::string> out;
    const auto all = server::TrainingRuns(roots).list();
    for (const auto& r : all["runs"]) out.insert(r["name"].get<std::string>());
    return out;
  };
  EXPECT_EQ(names({folder.path()}), (std::set<std::string>{"a/b/c", "a/d"}));
  EXPECT_EQ(names({folder / "a/d"}), (std::set<std::string>{"d"}));
  EXPECT_EQ(names({folder / "a", folder.path()}).size(), 2u);
  EXPECT_TRUE(names({}).empty());
}

}  // namespace ebb::testing
