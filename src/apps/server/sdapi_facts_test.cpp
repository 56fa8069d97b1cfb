// What A1111's routes tell of jobs: progress, finished tasks, `info`.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "apps/server/finished_tasks.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

json timed_request(int64_t steps = 2) {
  return {{"prompt", "fox"}, {"steps", steps}, {"width", 64}, {"height", 64}, {"seed", 9}};
}

using GuardFor = std::function<void(server::GuardOptions&)>;

struct SdapiFacts : ::testing::Test {
  // Once a job runs whose model is loaded.
  json running_state() {
    for (int i = 0; i < 2000; ++i) {
      const json p = server_.get("/sdapi/v1/progress").json();
      const json state = p["state"];
      if (state["job"] != "" && state["job_count"] != -1) return state;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "no job runs";
    return {};
  }
  Folder folder_;
  TestServer server_{folder_.path(), 10};
};

}  // namespace

TEST_F(SdapiFacts, progress__counts_batches_and_passes) {
  EXPECT_EQ(server_.get("/sdapi/v1/progress").json()["state"]["job_timestamp"], "0");
  for (const bool hires : {false, true}) {
    json body = timed_request(40);
    body.update({{"batch_size", 2}, {"n_iter", 3}, {"enable_hr", hires}, {"hr_scale", 1.5}});
    std::jthread asks([&] { server_.post("/sdapi/v1/txt2img", body); });
    const json state = running_state();
    EXPECT_EQ(state["job_count"], hires ? 6 : 3) << state.dump();
    EXPECT_EQ(state["job_no"], 0);
    const std::string time = state["job_timestamp"];
    EXPECT_EQ(time.size(), 14u) << time;
    EXPECT_EQ(time.substr(0, 2), "20");
    server_.post("/sdapi/v1/interrupt", json::object());
  }
}

// By the share of the job that is made: past the first batch, and into its second pass.
TEST_F(SdapiFacts, progress__goes_through_batches_and_passes) {
  for (const bool hires : {false, true}) {
    json body = timed_request(20);
    body.update({{"batch_size", 2}, {"n_iter", 3}, {"enable_hr", hires}, {"hr_scale", 1.5}});
    std::atomic<bool> ended = false;
    std::jthread asks([&] { server_.post("/sdapi/v1/txt2img", body), ended = true; });
    std::vector<int64_t> numbers;
    while (!ended) {
      const json state = server_.get("/sdapi/v1/progress").json()["state"];
      if (state["job"] == "" || (!numbers.empty() && numbers.back() == state["job_no"])) continue;
      numbers.push_back(state["job_no"]);
    }
    EXPECT_EQ(numbers,
              hires ? (std::vector<int64_t>{0, 1, 2, 3, 4, 5}) : (std::vector<int64_t>{0, 1, 2}));
  }
}

// Clients stop asking at `completed` alone.
TEST(server_queue, finished_tasks__are_known_longer_than_their_jobs) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.queue.known = 2; });
  for (const char* id : {"one", "two", "three"}) {
    json body = timed_request();
    body["force_task_id"] = id;
    EXPECT_EQ(s.post("/sdapi/v1/txt2img", body).status, 200);
  }
  s.service().queue().forget();
  EXPECT_EQ(s.get("/ebb/v1/jobs/one").status, 404);
  const auto completed = [&](const char* id) {
    return s.post("/internal/progress", {{"id_task", id}}).json()["completed"];
  };
  EXPECT_EQ(completed("one"), true);
  EXPECT_EQ(completed("three"), true);
  EXPECT_EQ(completed("none"), false);
  EXPECT_EQ(s.get("/sdcpp/v1/jobs/one").status, 410);
  EXPECT_EQ(s.get("/sdcpp/v1/jobs/none").status, 404);
}

TEST(FinishedTasks, are_forgotten_in_time_and_beyond_a_number) {
  constexpr double hour = server::FinishedTasks::known_seconds;
  server::FinishedTasks all;
  all.add("a", 0);
  all.add("a", 1);
  EXPECT_TRUE(all.knows("a", hour + 1));
  EXPECT_FALSE(all.knows("a", hour + 2)) << "though none was added";
  all.add("b", hour + 2);
  for (size_t i = 0; i < server::FinishedTasks::most; ++i) all.add(std::to_string(i), hour + 3);
  EXPECT_FALSE(all.knows("b", hour + 3));
  EXPECT_TRUE(all.knows("0", hour + 3));
}

TEST_F(SdapiFacts, extra_generation_params__are_extras_alone) {
  const json info = json::parse(
      server_.post("/sdapi/v1/txt2img", timed_request()).json()["info"].get<std::string>());
  EXPECT_EQ(info["extra_generation_params"], json::object());
  EXPECT_NE(info["infotexts"][0].get<std::string>().find("Steps: 2"), std::string::npos);
}

TEST_F(SdapiFacts, openai__response_format_is_one_of_two) {
  const auto a = server_.post("/v1/images/generations",
                              {{"prompt", "x"}, {"size", "64x64"}, {"response_format", "b64"}});
  EXPECT_EQ(a.status, 422);
  EXPECT_EQ(a.json()["error"]["param"], "response_format");
}

// Clients fetch it as it stands there.
TEST(server_openai, urls__are_those_that_the_client_reaches_the_server_by) {
  const Folder folder;
  const auto url = [&](const GuardFor& guard, const std::string& headers) {
    TestServer s(folder.path(), 1, [&](auto& o) { guard(o.guard); });
    const std::string body = R"({"prompt": "x", "size": "64x64", "response_format": "url"})";
    Wire wire(s.port());
    wire.send(str("POST /v1/images/generations HTTP/1.1\r\n", headers, "Content-Length: ",
                  body.size(), "\r\nContent-Type: application/json\r\n\r\n", body));
    const json answer = wire.answer().json();
    return answer["data"][0]["url"].get<std::string>();
  };
  const auto begins = [](const std::string& text, const std::string& with) {
    EXPECT_TRUE(text.starts_with(with + "/ebb/v1/images/20")) << text;
  };
  const auto proxy = [](auto& g) { g.proxies = {"127.0.0.1"}, g.hosts = {"box.example.org"}; };
  const std::string forwarded =
      "Host: localhost\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: box.example.org\r\n";
  begins(url([](auto&) {}, "Host: localhost:7860\r\n"), "http://localhost:7860");
  begins(url([](auto&) {}, "Host: [::1]:7860\r\n"), "http://[::1]:7860");
  begins(url([](auto&) {}, forwarded), "http://localhost");
  begins(url(proxy, forwarded), "https://box.example.org");
  const auto with_key = [](auto& g) { g.key = "12345678"; };
  begins(url(with_key, "Authorization: Bearer 12345678\r\nHost:\r\n"), "");
}

TEST(server_models, none_there__503_that_names_the_flag) {
  const Folder folder;
  TestServer s(folder.path(), 1, {}, [](const server::Catalogue& c) {
    cli::CommonOptions device;
    device.device = "cpu", device.threads = 1;
    return server::pipeline_engine(c, device, "auto");
  });
  for (const char* path : {"/sdapi/v1/txt2img", "/v1/images/generations"}) {
    const auto a = s.post(path, {{"prompt", "x"}});
    EXPECT_EQ(a.status, 503) << path;
    EXPECT_NE(a.body.find("--models FOLDER"), std::string::npos) << a.body;
  }
  const json plan = s.post("/ebb/v1/plan", {{"size", "64x64"}}).json();
  EXPECT_EQ(plan["bytes"], nullptr);
  EXPECT_NE(plan["text"].get<std::string>().find("--models FOLDER"), std::string::npos);
}

}  // namespace ebb::testing
