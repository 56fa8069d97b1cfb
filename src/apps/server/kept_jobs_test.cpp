// Files of kept jobs that another program wrote, or that a disk damaged.
#include <gtest/gtest.h>

#include <tuple>

#include "apps/server/engine.h"
#include "apps/server/fault.h"
#include "apps/server/queue.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// A job that waits in the queue's folder below `folder`, with its file changed.
void keep(const Folder& folder, const std::function<void(json&)>& change) {
  const std::string jobs = folder / "out/.jobs";
  server::Job job;
  job.id = "kept", job.file = "file";
  job.spec.flags.prompt = "fox", job.spec.flags.size = "64x64";
  server::write_inputs(jobs, job);
  server::write_job(jobs, job, 0);
  json text = json::parse(file_bytes(jobs + "/file.json"));
  change(text);
  put_file(jobs + "/file.json", text.dump());
}

}  // namespace

TEST(kept_jobs, numbers_out_of_range__leave_the_file_and_say_which) {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"quality", 1e308},
                                                 {"quality", 0},
                                                 {"format", 1e308},
                                                 {"format", 99},
                                                 {"done", -1},
                                                 {"done", 1e308},
                                                 {"done", 0xffffffffffffffffu}}) {
    Folder folder;
    keep(folder, [n = name, v = value](json& j) { j[n] = v; });
    std::string said;
    EXPECT_TRUE(
        server::read_jobs(folder / "out/.jobs", [&](const std::string& s) { said = s; }).empty());
    EXPECT_NE(said.find(name + " must be a whole number from "), said.npos) << said;
    EXPECT_TRUE(std::filesystem::exists(folder / "out/.jobs/file.json"));
  }
}

TEST(kept_jobs, settings_that_no_request_may_have__leave_the_file_and_say_which) {
  for (const auto& [name, value, rule] : std::vector<std::tuple<std::string, json, std::string>>{
           {"n", 1'000'000'000'000, "n: must be from 1 to 256 (got 1000000000000)"},
           {"steps", 1'000'000, "steps: must be from 1 to 1000 (got 1000000)"},
           {"steps", 0, "steps: must be from 1 to 1000"},
           {"batch", 17, "batch: must be from 0 to 16 (got 17)"},
           {"clip_skip", 65, "clip_skip: must be from 0 to 64"},
           {"size", "100000x64", "size: must be from 1 to 4096 (got 100000)"},
           {"size", "60x60", "multiples of 8"},
           {"strength", 1e21, "strength: must lie in [0, 1] (got 1e+21)"},
           {"hires", "8:latent", ""},
           {"outpaint", "8000,8000,8000,8000", "outpaint: makes 16064x16064 pixels"}}) {
    Folder folder;
    keep(folder, [n = name, v = value](json& j) { j["settings"][n] = v; });
    std::string said;
    const auto jobs =
        server::read_jobs(folder / "out/.jobs", [&](const std::string& s) { said = s; });
    EXPECT_EQ(jobs.empty(), !rule.empty()) << name;
    EXPECT_NE(said.find(rule), said.npos) << said;
  }
}

TEST(kept_jobs, moved_ones__keep_their_place_and_those_that_ended_leave_no_file) {
  Folder folder;
  const std::string jobs = folder / "jobs";
  const auto submit = [](server::Queue& q, const std::string& id) {
    server::JobSpec spec;
    spec.id = id, spec.flags.prompt = id, spec.flags.size = "64x64";
    q.submit(std::move(spec));
  };
  {
    server::Queue q({}, jobs);
    for (const char* id : {"a", "b", "c", "d"}) submit(q, id);
    EXPECT_TRUE(q.move("d", 0));
    EXPECT_TRUE(q.move("a", 99));
    EXPECT_FALSE(q.move("e", 0));
    EXPECT_TRUE(q.cancel("b"));
    q.close(false);
  }
  server::Queue next({}, jobs);
  EXPECT_EQ(next.waiting(), (std::vector<std::string>{"d", "c", "a"}));
  submit(next, "e");
  EXPECT_TRUE(next.move("e", 1));
  EXPECT_EQ(server::Queue({}, jobs).waiting(), (std::vector<std::string>{"d", "e", "c", "a"}));
}

// The clock may have been set between them.
TEST(kept_jobs, order__is_that_of_their_numbers_then_of_their_times) {
  Folder folder;
  const std::vector<std::pair<int64_t, double>> all = {
      {3, 100}, {1, 300}, {2, 200}, {0, 60}, {0, 50}};
  for (const auto& [order, created] : all) {
    server::Job job;
    job.id = job.file = str("job", order, '-', created);
    job.order = order, job.created = created;
    job.spec.flags.prompt = "fox", job.spec.flags.size = "64x64";
    server::write_job(folder.path(), job, 0);
  }
  std::vector<double> times;
  for (const auto& job : server::read_jobs(folder.path(), {})) times.push_back(job->created);
  EXPECT_EQ(times, (std::vector<double>{50, 60, 300, 200, 100}));
}

TEST(kept_jobs, times_out_of_range__leave_the_file) {
  for (const json& created : {json(1e308), json(-1), json("now"), json()}) {
    Folder folder;
    keep(folder, [&](json& j) { j["created"] = created; });
    std::string said;
    EXPECT_TRUE(
        server::read_jobs(folder / "out/.jobs", [&](const std::string& s) { said = s; }).empty());
    EXPECT_NE(said.find("created must be a time from 0 to 253402300800 s"), said.npos) << said;
  }
}

// Its end is an error of the job.
TEST(kept_jobs, upscale_that_no_request_may_ask_for__is_an_error) {
  const Tensor picture(DType::u8, {64, 8, 3});
  for (const auto& [scale, width, height] : {std::tuple{1e308, 0, 0},
                                             {-1.0, 0, 0},
                                             {2.0, 1'000'000, 1},
                                             {2.0, 16384, 16},  // cropped out of 16384x131072
                                             {16.0, -1, 5}}) {
    server::UpscaleSettings s{.scale = scale, .width = width, .height = height};
    EXPECT_THROW(server::upscaled_size(picture, s), server::HttpFault) << scale << ' ' << width;
  }
  EXPECT_EQ(server::upscaled_size(picture, {.scale = 16}),
            (std::pair<int64_t, int64_t>{1024, 128}));
}

TEST(kept_jobs, damaged_note_of_a_protocol__is_a_job_of_none) {
  const json whole = {{"client", "me"},
                      {"sampler", "3"},
                      {"class", "KSampler"},
                      {"number", 1},
                      {"shows", {{"9", "output"}}},
                      {"graph", json::object()}};
  json odd = whole;
  odd["number"] = 1e308;
  for (const json& note :
       {whole, odd, json(5), json::object(), json{{"client", 1}, {"shows", "x"}}}) {
    Folder folder;
    keep(folder, [&](json& j) { j["note"] = {{"comfy", note}}; });
    TestServer server(folder.path());
    EXPECT_EQ(server.finished("kept")["status"], "completed");
    const auto history = server.get("/history");
    EXPECT_EQ(history.status, 200) << history.body;
    EXPECT_EQ(history.json().contains("kept"), note == whole) << note;
    EXPECT_EQ(server.get("/queue").status, 200);
  }
}

}  // namespace ebb::testing
