// What lies on the device of the engine is freed when that is asked for; a device that is lost is
// told, and jobs are left for the next process.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "pipeline/model_in_the_box.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// The engine of tests, and how often it was to free what it has.
class Freed final : public server::Engine {
 public:
  Freed(std::atomic<int>& times, int64_t step_ms)
      : times_(times), engine_(server::fake_engine(step_ms)) {}
  void run(const server::Job& job, int64_t first, server::JobEvents& events) override {
    engine_->run(job, first, events);
  }
  Joins joins(const server::Job&) override { return {}; }
  void run_batch(std::span<server::BatchMember>) override {}
  server::JobMemory plan(const server::Job& job) override { return engine_->plan(job); }
  void release() override { ++times_, engine_->release(); }
  std::string loaded() const override { return engine_->loaded(); }

 private:
  std::atomic<int>& times_;
  std::unique_ptr<server::Engine> engine_;
};

class ServerDevice : public ::testing::Test {
 protected:
  void start(int64_t step_ms, const TestServer::Change& change = {}) {
    server_ = std::make_unique<TestServer>(
        folder_.path(), step_ms, change,
        [this, step_ms](const auto&) { return std::make_unique<Freed>(freed_, step_ms); });
  }
  bool freed_becomes(int times) const {
    for (int i = 0; i < 500 && freed_ != times; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return freed_ == times;
  }
  static json job(const std::string& prompt) {
    return {{"prompt", prompt}, {"size", "64x64"}, {"steps", 4}};
  }
  std::atomic<int> freed_ = 0;
  Folder folder_;
  std::unique_ptr<TestServer> server_;
};

}  // namespace

TEST_F(ServerDevice, unload_checkpoint__frees_it_though_no_job_comes) {
  start(0);
  server_->finished(server_->post("/ebb/v1/jobs", job("x")).json()["id"]);
  EXPECT_EQ(server_->post("/sdapi/v1/unload-checkpoint", json::object()).status, 200);
  EXPECT_TRUE(freed_becomes(1));
}

TEST_F(ServerDevice, unload_checkpoint__while_a_job_runs_frees_it_behind_the_job) {
  start(50);
  const std::string id = server_->post("/ebb/v1/jobs", job("x")).json()["id"];
  while (!server_->service().queue().running()) {
  }
  EXPECT_EQ(server_->post("/sdapi/v1/unload-checkpoint", json::object()).status, 200);
  EXPECT_EQ(server_->finished(id)["status"], "completed");
  EXPECT_TRUE(freed_becomes(1));
}

// As CUDA's behind a kernel's fault: only another process can use it again.
TEST_F(ServerDevice, lost__the_job_fails_and_no_more_are_taken) {
  start(0);
  const auto lost = server_->post("/sdapi/v1/txt2img", {{"prompt", "lose the device"}});
  EXPECT_EQ(lost.status, 500);
  EXPECT_NE(lost.body.find("asks for a lost device"), std::string::npos) << lost.body;
  HttpAnswer health = server_->get("/healthz");
  for (int i = 0; i < 500 && health.status != 503; ++i) health = server_->get("/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["ready"], false);
  EXPECT_NE(health.body.find("asks for a lost device"), std::string::npos) << health.body;
  EXPECT_EQ(server_->post("/ebb/v1/jobs", job("x")).status, 503) << "no more are taken";
  EXPECT_EQ(server_->get("/ebb/v1/jobs").status, 200) << "what there is can be looked at";
}

TEST_F(ServerDevice, model_that_cannot_be_loaded__is_not_told_as_loading_behind_the_job) {
  if (model_in_the_box().empty()) GTEST_SKIP() << "there is no model in the box";
  start(0, [](auto& o) {
    o.folders = {{std::filesystem::path(model_in_the_box()).parent_path().string(), {}, true}};
  });
  server_->service().catalogue().wait_for_scan();
  const std::string id = server_->post("/ebb/v1/jobs", job("fail to load")).json()["id"];
  EXPECT_EQ(server_->finished(id)["status"], "failed");
  const auto told = [&](const json& model) {
    json health;
    for (int i = 0; i < 500 && health["model"] != model; ++i)
      health = server_->get("/healthz").json();
    return health;
  };
  EXPECT_EQ(told("")["model"], "");
  server_->finished(server_->post("/ebb/v1/jobs", job("x")).json()["id"]);
  const json ready = server_->get("/healthz").json();
  EXPECT_TRUE(ready["ready"]) << ready;
  server_->finished(server_->post("/ebb/v1/jobs", job("out of memory")).json()["id"]);
  EXPECT_EQ(told("")["model"], "") << "all was given back";
  EXPECT_EQ(freed_, 1);
}

TEST_F(ServerDevice, health__is_clear_behind_a_job_that_ends_well) {
  start(0);
  server_->finished(server_->post("/ebb/v1/jobs", job("fail")).json()["id"]);
  EXPECT_NE(server_->get("/healthz").json()["last_error"], nullptr);
  server_->finished(server_->post("/ebb/v1/jobs", job("x")).json()["id"]);
  EXPECT_EQ(server_->get("/healthz").json()["last_error"], nullptr);
}

TEST(server_device, errors_of_jobs__are_not_told_without_the_key) {
  const Folder folder;
  TestServer s(folder.path(), 0, [](auto& o) { o.guard.key = "a long key"; });
  const auto a =
      s.post("/sdapi/v1/txt2img", {{"prompt", "fail"}}, "Authorization: Bearer a long key\r\n");
  EXPECT_EQ(a.status, 500) << a.body;
  const auto health = s.get("/healthz");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.json()["last_error"], nullptr) << health.body;
}

}  // namespace ebb::testing
