// Files of kept jobs that another program wrote, or that a disk damaged.
#include <gtest/gtest.h>

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
    keep(folder, [&](json& j) { j[name] = value; });
    std::string said;
    EXPECT_TRUE(
        server::read_jobs(folder / "out/.jobs", [&](const std::string& s) { said = s; }).empty());
    EXPECT_NE(said.find(name + " must be a whole number from "), said.npos) << said;
    EXPECT_TRUE(std::filesystem::exists(folder / "out/.jobs/file.json"));
  }
}

TEST(kept_jobs, more_pictures_than_a_request_may_ask_for__are_not_made) {
  Folder folder;
  keep(folder, [](json& j) { j["settings"]["n"] = 1'000'000'000'000; });
  std::string said;
  EXPECT_TRUE(
      server::read_jobs(folder / "out/.jobs", [&](const std::string& s) { said = s; }).empty());
  EXPECT_NE(said.find("n must be from 1 to 256, not 1000000000000"), said.npos) << said;
}

TEST(kept_jobs, damaged_note_of_a_protocol__is_a_job_of_none) {
  const json whole = {{"client", "me"},
                      {"sampler", "3"},
                      {"class", "KSampler"},
                      {"number", 1},
                      {"shows", {{"9", "output"}}},
                      {"graph", json::object()}};
  for (const json& note : {whole, json(5), json::object(), json{{"client", 1}, {"shows", "x"}}}) {
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
