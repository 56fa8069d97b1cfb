// The native protocol: jobs, events, the gallery, and the queue that survives the process.
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "apps/server/base64.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

json small_job(const std::string& prompt, int64_t n = 1) {
  return {{"prompt", prompt}, {"size", "64x64"}, {"steps", 4}, {"seed", 5}, {"n", n}};
}

std::string id_of(const HttpAnswer& a) {
  EXPECT_EQ(a.status, 202) << a.body;
  return a.json().value("id", "");
}

class NativeServer : public ::testing::Test {
 protected:
  std::string post(const json& body) { return id_of(server_.post("/ebb/v1/jobs", body)); }
  Folder folder_;
  TestServer server_{folder_.path(), 20};
};

}  // namespace

TEST_F(NativeServer, job__goes_from_queued_to_a_picture_in_the_gallery) {
  const json done = server_.finished(post(small_job("a red fox", 2)));
  EXPECT_EQ(done["status"], "completed");
  ASSERT_EQ(done["images"].size(), 2u);
  EXPECT_EQ(done["images"][1]["seed"], 6);
  const json list = server_.get("/ebb/v1/images?limit=1").json();
  EXPECT_TRUE(list["more"]);
  EXPECT_EQ(list["images"][0]["prompt"], "a red fox");
  const std::string next = "/ebb/v1/images?before=" + list["images"][0]["id"].get<std::string>();
  EXPECT_EQ(server_.get(next).json()["images"].size(), 1u);
  EXPECT_EQ(server_.get("/ebb/v1/images?q=fox%20red").json()["images"].size(), 2u);
  EXPECT_EQ(server_.get("/ebb/v1/images?q=cat").json()["images"].size(), 0u);
  const std::string url = done["images"][0]["url"];
  EXPECT_EQ(server_.get(url).body.substr(1, 3), "PNG");
  EXPECT_EQ(server_.get(url + "/thumb").header("content-type"), "image/jpeg");
  const json meta = server_.get(url + "/meta").json();
  EXPECT_EQ(meta["settings"]["prompt"], "a red fox") << meta.dump();
  EXPECT_EQ(ask(server_.port(), "DELETE", url).status, 200);
  EXPECT_EQ(server_.get(url).status, 404);
}

TEST_F(NativeServer, events__tell_the_whole_way_and_go_on_from_an_id) {
  Wire wire(server_.port());
  wire.send(http_request("GET", "/ebb/v1/events"));
  ASSERT_TRUE(wire.until("event: state"));
  const std::string id = post(small_job("fox"));
  ASSERT_TRUE(wire.until("event: done"));
  size_t at = 0;
  for (const char* name : {"state", "queued", "started", "step", "image", "done"}) {
    at = wire.read.find(str("event: ", name, "\n"), at);
    EXPECT_NE(at, std::string::npos) << name << "\n" << wire.read;
  }
  EXPECT_NE(wire.read.find("\"preview_id\":"), std::string::npos);
  Wire later(server_.port());
  const int64_t first = std::stoll(wire.read.substr(wire.read.find("id: ") + 4));
  later.send(http_request("GET", "/ebb/v1/events", "", str("Last-Event-ID: ", first + 2, "\r\n")));
  ASSERT_TRUE(later.until("event: done"));
  EXPECT_EQ(later.read.find("event: state"), std::string::npos);
  EXPECT_EQ(later.read.find("event: queued"), std::string::npos);
  const json state = server_.get(str("/ebb/v1/state?since=", first)).json();
  EXPECT_EQ(state["events"][0]["event"], "queued");
}

// As many events as the other process had are told: none of them may be taken for those it missed.
TEST(server_restart, client_that_goes_on_from_an_earlier_process__gets_the_state) {
  const Folder folder;
  int64_t seen = 0;
  for (int process = 0; process < 2; ++process) {
    TestServer s(folder.path());
    auto& queue = s.service().queue();
    if (process == 0) {
      for (int i = 0; i < 3; ++i) queue.tell("model", {{"name", "x"}});
      seen = queue.last_event();
      continue;
    }
    for (int i = 0; i < 6; ++i) queue.tell("model", {{"name", "y"}});
    Wire wire(s.port());
    wire.send(http_request("GET", "/ebb/v1/events", "", str("Last-Event-ID: ", seen, "\r\n")));
    ASSERT_TRUE(wire.until("event: state")) << wire.read;
    EXPECT_EQ(wire.read.find("event: model"), std::string::npos) << wire.read;
    EXPECT_TRUE(s.get(str("/ebb/v1/state?since=", seen)).json()["events"].is_null());
  }
}

TEST_F(NativeServer, queue__is_reordered_and_cancelled_and_skipped) {
  json slow = small_job("one", 2);
  slow["steps"] = 100;  // 2 s a picture: all of the below meets the first one
  const std::string runs = post(slow), second = post(small_job("two")),
                    third = post(small_job("three"));
  const auto moved = ask(server_.port(), "PATCH", "/ebb/v1/jobs/" + third, R"({"position":0})");
  EXPECT_EQ(moved.json()["queue_position"], 0) << moved.body;
  EXPECT_EQ(ask(server_.port(), "PATCH", "/ebb/v1/jobs/" + runs, R"({"position":0})").status, 409);
  EXPECT_EQ(server_.post("/ebb/v1/jobs/" + runs + "/skip", json::object()).status, 200);
  EXPECT_EQ(ask(server_.port(), "DELETE", "/ebb/v1/jobs/" + second).json()["status"], "cancelled");
  const json skipped = server_.finished(runs);
  EXPECT_EQ(skipped["status"], "completed");
  ASSERT_EQ(skipped["images"].size(), 1u);
  EXPECT_EQ(skipped["images"][0]["index"], 1);
  EXPECT_EQ(server_.finished(third)["status"], "completed");
  EXPECT_EQ(server_.get("/ebb/v1/jobs/nothing").status, 404);
}

TEST(server_skip, before_the_first_picture__leaves_that_one_out) {
  server::Job job;
  job.spec.flags.model = "some.safetensors", job.spec.flags.n = 3;
  job.spec.flags.size = "64x64", job.spec.flags.generate.steps = 1;
  job.skip = true;
  KeptEvents events(job);
  server::fake_engine(1)->run(job, 0, events);  // it meets the loading of the model
  EXPECT_EQ(events.indices, (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(job.skip);
}

TEST_F(NativeServer, cancel__ends_the_job_that_runs_within_a_step) {
  const std::string id = post({{"prompt", "long"}, {"size", "64"}, {"steps", 1000}});
  while (server_.get("/ebb/v1/jobs/" + id).json()["status"] != "generating") {
  }
  EXPECT_EQ(server_.get("/ebb/v1/jobs/" + id).json()["progress"]["cancelling"], false);
  const auto start = std::chrono::steady_clock::now();
  const json last = ask(server_.port(), "DELETE", "/ebb/v1/jobs/" + id).json();
  EXPECT_TRUE(last["status"] != "generating" || last["progress"]["cancelling"] == true);
  EXPECT_EQ(server_.finished(id)["status"], "cancelled");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(NativeServer, cancel__no_other_process_goes_on_with_the_job) {
  const std::string id = post({{"prompt", "long"}, {"size", "64"}, {"steps", 1000}});
  while (server_.get("/ebb/v1/jobs/" + id).json()["status"] != "generating") {
  }
  const auto kept = [&] {
    return server::read_jobs(folder_ / "out/.jobs", [](const std::string&) {}).size();
  };
  EXPECT_EQ(kept(), 1u);
  server_.service().queue().cancel(id);
  EXPECT_EQ(kept(), 0u);
}

TEST_F(NativeServer, other_methods__405_with_those_that_are_taken) {
  const auto native = ask(server_.port(), "PUT", "/ebb/v1/jobs");
  EXPECT_EQ(native.status, 405);
  EXPECT_EQ(native.header("allow"), "POST, GET, DELETE");
  EXPECT_EQ(native.json()["error"]["message"], "/ebb/v1/jobs takes POST, GET, DELETE (got PUT)");
  const auto of_a1111 = server_.get("/sdapi/v1/txt2img");
  EXPECT_EQ(of_a1111.status, 405);
  EXPECT_EQ(of_a1111.json()["detail"], "/sdapi/v1/txt2img takes POST (got GET)");
}

TEST_F(NativeServer, failure__is_told_and_the_next_job_runs) {
  const json failed = server_.finished(post(small_job("fail")));
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_NE(failed["error"]["message"].get<std::string>().find("fake"), std::string::npos);
  EXPECT_NE(server_.get("/healthz").json()["last_error"], nullptr);
  EXPECT_EQ(server_.finished(post(small_job("fox")))["status"], "completed");
  EXPECT_EQ(server_.get("/healthz").json()["last_error"], nullptr);
}

TEST_F(NativeServer, settings__are_those_of_fields_and_others_are_told) {
  const auto a = server_.post("/ebb/v1/jobs", {{"promt", "x"}});
  EXPECT_EQ(a.status, 422);
  EXPECT_NE(a.body.find("did you mean 'prompt'"), std::string::npos) << a.body;
  const auto number = server_.post("/ebb/v1/jobs", {{"prompt", 5}});
  EXPECT_EQ(number.status, 422);
  EXPECT_NE(number.body.find("prompt: must be a text (got 5)"), std::string::npos) << number.body;
  const auto many = server_.post("/sdapi/v1/txt2img", {{"steps", std::string(79, 'a') + "\u00e4"}});
  EXPECT_EQ(many.status, 422);
  EXPECT_NE(many.body.find("must be a number (got"), std::string::npos) << many.body;
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"prompt", json::array({1})}}).status, 422);
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"size", 64}}).json()["settings"]["size"], "64");
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"sampler", "eulr"}}).status, 400);
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"tiling", "z"}}).status, 422);
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"kind", "video"}}).status, 422);
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"vae", json::array({"a"})}}).status, 400);
  const json c = server_.get("/ebb/v1/catalogue").json();
  size_t known = 0;
  for (const auto& s : c["settings"])
    if (s["name"] == "steps" || s["name"] == "mask_blur") ++known;
  EXPECT_EQ(known, 2u);
}

TEST_F(NativeServer, openapi__has_the_routes_with_their_bodies_and_parameters) {
  const auto all = server_.get("/ebb/v1/openapi.json").json();
  const auto body = [&](const char* path, const char* method) {
    return all["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"];
  };
  EXPECT_EQ(body("/ebb/v1/jobs", "post")["$ref"], "#/components/schemas/Settings");
  EXPECT_EQ(body("/ebb/v1/plan", "post")["$ref"], "#/components/schemas/Settings");
  EXPECT_EQ(all["components"]["schemas"]["Settings"]["properties"]["steps"]["type"], "integer");
  EXPECT_EQ(body("/ebb/v1/jobs/{id}", "patch")["properties"]["position"]["type"], "integer");
  EXPECT_TRUE(body("/ebb/v1/inspect", "post")["properties"].contains("image"));
  const auto parameters = all["paths"]["/ebb/v1/jobs/{id}/preview"]["get"]["parameters"];
  EXPECT_EQ(parameters[0]["name"], "id");
  EXPECT_EQ(parameters[0]["required"], true);
  EXPECT_EQ(parameters[1]["name"], "n");
  for (const char* path : {"/ebb/v1/catalogue/rescan", "/ebb/v1/events", "/ebb/v1/training"})
    EXPECT_TRUE(all["paths"].contains(path)) << path;
}

TEST_F(NativeServer, plan__tells_the_memory_and_queues_nothing) {
  const auto plan = server_.post("/ebb/v1/plan", {{"size", "512x512"}});
  ASSERT_EQ(plan.status, 200) << plan.body;
  EXPECT_EQ(plan.json()["bytes"], 64 * 512 * 512);
  EXPECT_EQ(plan.json()["limit"], 1'000'000'000);
  EXPECT_TRUE(server_.get("/ebb/v1/jobs").json()["jobs"].empty());
  const auto large = server_.post("/ebb/v1/plan", {{"size", "4096x4096"}});
  EXPECT_EQ(large.json()["bytes"], nullptr);
  EXPECT_NE(large.body.find("does not fit"), std::string::npos) << large.body;
  EXPECT_EQ(server_.post("/ebb/v1/plan", {{"init", "x"}}).status, 422);
  const std::string runs = post({{"prompt", "x"}, {"size", "64"}, {"steps", 1000}});
  EXPECT_EQ(server_.post("/ebb/v1/plan", {{"size", "512x512"}}).json()["text"], nullptr);
  ask(server_.port(), "DELETE", "/ebb/v1/jobs");
}

// Pictures that no gallery has go with what is known of their job, but for those that were given
// out as URLs.
TEST(server_store, pictures_in_memory__go_with_their_job) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.queue.known = 2; });
  const json body = {{"prompt", "x"}, {"steps", 1}, {"width", 64}, {"height", 64}};
  const auto made = [&] {
    EXPECT_EQ(s.post("/sdapi/v1/txt2img", body).status, 200);
    return "/ebb/v1/images/" + s.service().queue().all()[0].images[0].id;
  };
  const std::string first = made();
  EXPECT_EQ(s.get(first).status, 200);
  const std::string url = s.post("/v1/images/generations",
                                 {{"prompt", "x"}, {"size", "64x64"}, {"response_format", "url"}})
                              .json()["data"][0]["url"];
  for (int i = 0; i < 4; ++i) made();
  EXPECT_EQ(s.get(first).status, 404);
  EXPECT_EQ(s.get(path_of(url)).status, 200);
}

TEST_F(NativeServer, inspect__reads_what_a_picture_says) {
  const json done = server_.finished(post(small_job("a fox")));
  const json body = {{"image", "id:" + done["images"][0]["id"].get<std::string>()}};
  const json seen = server_.post("/ebb/v1/inspect", body).json();
  EXPECT_EQ(seen["settings"]["prompt"], "a fox") << seen.dump();
  EXPECT_EQ(seen["settings"]["seed"], 5);
  const std::string text = "a cat\nNegative prompt: dog\nSteps: 9, Sampler: Euler a, Seed: 3";
  const json other = server_.post("/ebb/v1/inspect", {{"text", text}}).json();
  EXPECT_EQ(other["settings"]["steps"], 9) << other.dump();
  EXPECT_EQ(other["settings"]["negative"], "dog");
}

TEST_F(NativeServer, start_picture__may_be_one_of_the_gallery) {
  const json done = server_.finished(post(small_job("a fox")));
  json body = small_job("a cat");
  body["init"] = "id:" + done["images"][0]["id"].get<std::string>();
  body["strength"] = 0.5;
  body["mask"] = server::base64(io::encode_png(gradient(8, 8, 1)));
  EXPECT_EQ(server_.finished(post(body))["status"], "completed");
  const json up = server_.finished(
      post({{"kind", "upscale"}, {"init", body["init"]}, {"upscale", "lanczos:1.5"}}));
  ASSERT_EQ(up["status"], "completed") << up.dump();
  const json meta = server_.get(up["images"][0]["url"].get<std::string>() + "/meta").json();
  EXPECT_EQ(meta["width"], 96);
}

TEST(server_queue, restart__goes_on_with_the_jobs_that_waited) {
  Folder folder;
  std::string first, second;
  {
    TestServer s(folder.path(), 30);
    json body = small_job("one", 3);
    body["init"] = server::base64(io::encode_png(gradient(8, 8, 3)));
    first = id_of(s.post("/ebb/v1/jobs", body));
    second = id_of(s.post("/ebb/v1/jobs", small_job("two")));
    while (s.get("/ebb/v1/jobs/" + first).json()["images"].empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  TestServer s(folder.path(), 1);
  const json one = s.finished(first), two = s.finished(second);
  EXPECT_EQ(one["status"], "completed") << one.dump();
  EXPECT_LT(one["images"].size(), 3u);  // the others were made before
  EXPECT_EQ(two["status"], "completed");
  EXPECT_EQ(s.get("/ebb/v1/images").json()["images"].size(), 4u);
  size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out/.jobs"))
    left += entry.exists();
  EXPECT_EQ(left, 0u);
}

std::string job_file(const Folder& folder) {
  for (const auto& e : std::filesystem::directory_iterator(folder / "out/.jobs"))
    if (e.path().extension() == ".json") return e.path().string();
  return {};
}

TEST(server_queue, two_kept_files_of_one_job__are_one_job) {
  Folder folder;
  std::string id;
  {
    TestServer s(folder.path(), 100);
    s.post("/ebb/v1/jobs", small_job("runs", 3));
    id = id_of(s.post("/ebb/v1/jobs", small_job("waits")));
  }
  for (const auto& e : std::filesystem::directory_iterator(folder / "out/.jobs")) {
    const std::string text = file_bytes(e.path().string());
    if (text.find(id) != std::string::npos)
      put_file(folder / "out/.jobs/copy0000copy0000.json", text);
  }
  TestServer s(folder.path(), 100);
  EXPECT_EQ(ask(s.port(), "DELETE", "/ebb/v1/jobs", "", "").status, 200);
  EXPECT_EQ(s.get("/ebb/v1/jobs/" + id).json()["status"], "cancelled");
}

TEST(server_queue, kept_job_of_an_unknown_setting__is_not_joined) {
  Folder folder;
  std::string id;
  {
    TestServer s(folder.path(), 100);
    json body = small_job("one", 1);
    body["dtype"] = "f32";
    id = id_of(s.post("/ebb/v1/jobs", body));
    std::string file, text;
    while (file.empty()) file = job_file(folder);
    text = file_bytes(file);
    const size_t at = text.find("f32");
    ASSERT_NE(at, std::string::npos) << text;
    put_file(folder / "kept", text.replace(at, 3, "xyz"));
    put_file(folder / "name", file);
    s.finished(id);
  }
  put_file(file_bytes(folder / "name"), file_bytes(folder / "kept"));
  TestServer s(folder.path(), 20, [](auto& o) { o.max_batch = 4, o.batch_window = 200; });
  const std::string other = id_of(s.post("/ebb/v1/jobs", small_job("two")));
  EXPECT_EQ(s.finished(id)["status"], "completed");  // the engine of tests reads no dtype alone
  EXPECT_EQ(s.finished(other)["status"], "completed");
}

// Killed between a picture and the note that it is there.
TEST(server_queue, picture_that_was_stored__is_not_made_twice) {
  Folder folder;
  std::string id, file, before;
  {
    TestServer s(folder.path(), 30);
    id = id_of(s.post("/ebb/v1/jobs", small_job("one", 3)));
    file = job_file(folder), before = file_bytes(file);
    while (s.get("/ebb/v1/jobs/" + id).json()["images"].size() < 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  put_file(file, before);
  put_file(folder / "out/20261127-050000-7-1a2b3c4d.png.part", "x");
  TestServer s(folder.path(), 1);
  const json done = s.finished(id);
  EXPECT_EQ(done["status"], "completed");
  const json images = s.get("/ebb/v1/images").json()["images"];
  EXPECT_EQ(images.size(), 3u);
  std::set<std::string> seeds;  // YYYYMMDD-HHMMSS-<nanoseconds>-<seed>-<tag>
  for (const json& i : images) {
    const std::string name = i["id"];
    seeds.insert(name.substr(26, name.rfind('-') - 26));
  }
  EXPECT_EQ(seeds, (std::set<std::string>{"5", "6", "7"}));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/20261127-050000-7-1a2b3c4d.png.part"));
}

TEST(server_queue, full__429_and_clients_take_turns) {
  Folder folder;
  TestServer s(folder.path(), 50, [](auto& o) { o.queue.jobs = 2; });
  const std::string runs = id_of(s.post("/ebb/v1/jobs", small_job("a")));
  while (s.get("/ebb/v1/jobs/" + runs).json()["status"] == "queued") {
  }
  id_of(s.post("/ebb/v1/jobs", small_job("b"))), id_of(s.post("/ebb/v1/jobs", small_job("c")));
  const auto full = s.post("/ebb/v1/jobs", small_job("d"));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(full.header("retry-after"), "5");
  server::Queue q({}, "");
  const auto add = [&](const char* client) {
    server::JobSpec spec;
    spec.client = client;
    return q.submit(spec)->id;
  };
  const std::string a1 = add("a"), a2 = add("a"), a3 = add("a"), b1 = add("b"), b2 = add("b");
  EXPECT_EQ(q.waiting(), (std::vector<std::string>{a1, b1, a2, b2, a3}));
}

TEST(server_key, without_it__401_and_ten_wrong_ones_429) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.guard.key = "secret-key"; });
  EXPECT_EQ(s.get("/healthz").status, 200);
  EXPECT_EQ(s.get("/ebb/v1/state").status, 401);
  EXPECT_EQ(s.get("/ebb/v1/state", "Authorization: Bearer secret-key\r\n").status, 200);
  const std::string basic = "x:secret-key";
  const std::string coded =
      server::base64({reinterpret_cast<const uint8_t*>(basic.data()), basic.size()});
  EXPECT_EQ(s.get("/ebb/v1/state", "Authorization: Basic " + coded + "\r\n").status, 200);
  EXPECT_EQ(ask(s.port(), "GET", "/ebb/v1/state", "", "Authorization: Bearer secret-key\r\n",
                "any.example")
                .status,
            200);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(s.get("/ebb/v1/state", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(s.get("/ebb/v1/state", "Authorization: Bearer secret-key\r\n").status, 429);
}

TEST(server_stop, waiting_requests__get_503_and_streams_a_bye) {
  Folder folder;
  TestServer s(folder.path(), 50);
  Wire events(s.port()), first(s.port()), second(s.port());
  events.send(http_request("GET", "/ebb/v1/events"));
  ASSERT_TRUE(events.until("event: state"));
  const std::string body = R"({"prompt":"x","steps":1000,"width":64,"height":64})";
  first.send(http_request("POST", "/sdapi/v1/txt2img", body));
  while (!s.service().queue().running()) {
  }
  second.send(http_request("POST", "/sdapi/v1/txt2img", body));
  while (s.service().queue().waiting().size() != 1) {
  }
  const auto start = std::chrono::steady_clock::now();
  s.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(6));
  EXPECT_EQ(first.answer().status, 200);  // with the pictures that are finished: none
  EXPECT_EQ(second.answer().status, 503);
  EXPECT_TRUE(events.until("event: bye"));
}

TEST(server_stop, drained__serves_those_who_wait_until_the_job_has_ended) {
  Folder folder;
  TestServer s(folder.path(), 20, [](auto& o) { o.drain = true; });
  Wire events(s.port());
  events.send(http_request("GET", "/ebb/v1/events"));
  const auto a = s.post("/ebb/v1/jobs", {{"prompt", "x"}, {"steps", 50}, {"size", "64x64"}});
  ASSERT_EQ(a.status, 202);
  const std::string id = a.json()["id"];
  ASSERT_TRUE(events.until("event: step"));
  s.service().stop();
  EXPECT_EQ(s.post("/ebb/v1/jobs", {{"prompt", "x"}}).status, 503);
  for (const char* path : {"/ebb/v1/state", "/sdapi/v1/progress", "/internal/ping"})
    EXPECT_EQ(s.get(path).status, 200) << path;
  EXPECT_EQ(s.get("/ebb/v1/jobs/" + id).json()["status"], "generating");
  EXPECT_TRUE(Wire(s.port()).open());
  ASSERT_TRUE(events.until("event: bye"));
  EXPECT_LT(events.read.find("event: done"), events.read.find("event: bye"));
}

// Its picture may still have to be encoded when nothing runs any more.
TEST(server_stop, drained__waits_for_pictures_that_are_being_encoded) {
  Folder folder;
  TestServer s(folder.path(), 1,
               [](auto& o) { o.drain = true, o.last_answers = std::chrono::milliseconds(100); });
  Wire client(s.port());
  std::promise<void> goes_on;
  const auto gate = goes_on.get_future().share();
  const std::string body = R"({"prompt":"x","steps":20,"width":64,"height":64})";
  client.send(http_request("POST", "/sdapi/v1/txt2img", body));
  auto& queue = s.service().queue();
  while (!queue.running()) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) s.service().codec().add([gate] { gate.wait(); });
  while (queue.running()) std::this_thread::yield();
  ASSERT_EQ(queue.all()[0].status, server::JobStatus::generating);
  s.service().stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  goes_on.set_value();
  const auto a = client.answer();
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.json()["images"].size(), 1u);
}

// A job may be over, and even forgotten, before anybody asks to be told of its end.
TEST(server_stop, end_of_all_that_runs__is_told_in_any_order) {
  server::Queue q({.known = 0}, "");
  int told = 0;
  const auto tell = [&] { ++told; };
  q.when_none_runs(tell);
  EXPECT_EQ(told, 1) << "nothing runs";
  for (int i = 0; i < 2; ++i) q.submit({});
  const auto first = q.next();
  q.join(q.waiting_jobs());
  const auto second = q.find(q.running_ids()[1])->job;
  q.encoding(*first);
  q.finish(*first, server::JobStatus::completed);
  q.finish(*second, server::JobStatus::completed);
  q.forget();
  EXPECT_FALSE(q.find(second->id));
  q.when_none_runs(tell);
  EXPECT_EQ(told, 1) << "a picture of the first is being encoded";
  q.encoded(*first, {});
  EXPECT_EQ(told, 2);
  q.forget();
  q.when_none_runs(tell);
  EXPECT_EQ(told, 3);
}

}  // namespace ebb::testing
