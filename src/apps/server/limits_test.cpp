// What is too much, and disks that fail: it is told, and jobs end all the same.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "apps/server/fault.h"
#include "apps/server/log.h"
#include "apps/server/tasks.h"
#include "io/safetensors.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

json small(const json& changes = {}) {
  json out = {{"prompt", "a fox"}, {"size", "64"}, {"steps", 2}};
  if (changes.is_object()) out.update(changes);
  return out;
}

server::JobImage image_of(int64_t index) {
  server::JobImage out;
  out.index = index;
  return out;
}

}  // namespace

TEST(server_disk, folder_of_jobs_that_cannot_be_written__the_job_ends_with_a_warning) {
  Folder folder;
  server::Queue q({}, folder / "jobs");
  q.submit({});
  const auto job = q.next();
  std::filesystem::remove_all(folder / "jobs");
  put_file(folder / "jobs", "x");
  q.encoding(*job);
  q.finish(*job, server::JobStatus::completed);
  q.encoded(*job, image_of(0));
  q.encoded(*job, {});  // which is once too often
  const auto view = *q.find(job->id);
  EXPECT_EQ(view.status, server::JobStatus::completed);
  ASSERT_EQ(view.warnings.size(), 1u);
  EXPECT_NE(view.warnings[0].find("behind a restart"), std::string::npos) << view.warnings[0];
}

TEST(server_disk, job_that_cannot_be_kept__507) {
  Folder folder;
  std::filesystem::create_directories(folder / "out");
  put_file(folder / "out/.jobs", "x");
  TestServer s(folder.path());
  const auto a = s.post("/ebb/v1/jobs", small());
  EXPECT_EQ(a.status, 507) << a.body;
  EXPECT_EQ(a.json()["error"]["code"], "cannot_keep");
}

TEST(server_disk, picture_that_is_missing__is_the_first_one_behind_a_restart) {
  Folder folder;
  {
    server::Queue q({}, folder / "jobs");
    server::JobSpec spec;
    spec.flags.n = 3;
    q.submit(spec);
    const auto job = q.next();
    q.encoding(*job), q.encoding(*job);
    q.encoded(*job, image_of(1));  // before the picture 0
  }
  server::Queue q({}, folder / "jobs");
  ASSERT_EQ(q.waiting().size(), 1u);
  EXPECT_EQ(q.next()->done_before, 0);
}

TEST(server_queue, finished_jobs__are_bounded) {
  server::QueueLimits limits;
  limits.known = 3;
  server::Queue q(limits, "");
  for (int i = 0; i < 8; ++i) {
    q.submit({});
    q.finish(*q.next(), server::JobStatus::completed);
  }
  EXPECT_EQ(q.all().size(), 3u);
}

// As of a preview that fails at each step.
TEST(server_queue, warning__is_kept_once) {
  server::Queue q({}, "");
  q.submit({});
  const auto job = q.next();
  for (int i = 0; i < 3; ++i) q.warn(*job, "the same"), q.warn(*job, "another");
  EXPECT_EQ(q.find(job->id)->warnings, (std::vector<std::string>{"the same", "another"}));
}

TEST(server_queue, those_who_wait_for_a_job__are_called_in_order_without_the_lock) {
  server::Queue q({}, "");
  const auto job = q.submit({});
  std::string order;
  std::atomic<bool> answered = false;
  std::jthread asks;
  q.when_finished(*job, [&](const server::JobView&) {
    asks = std::jthread([&] { answered = q.find(job->id).has_value(); });
    for (int i = 0; i < 500 && !answered; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    order += answered ? "first " : "locked out ";
  });
  q.when_finished(*job, [&](const server::JobView& v) { order += name_of(v.status); });
  EXPECT_TRUE(q.cancel(job->id));
  EXPECT_EQ(order, "first cancelled");
}

// The I/O thread asks the queue: it must not wait for a disk.
TEST(server_queue, pictures_of_a_request_that_are_written__do_not_keep_others_waiting) {
  Folder folder;
  server::Queue q({}, folder / "jobs");
  server::JobSpec spec;
  spec.inputs = {{"init", std::vector<uint8_t>(size_t{96} << 20)}};
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> done = false;
  Clock::duration took{}, longest{};
  const std::jthread submits([&] {
    const auto start = Clock::now();
    q.submit(std::move(spec));
    took = Clock::now() - start;
    done = true;
  });
  while (!done) {
    const auto start = Clock::now();
    q.find("x");
    longest = std::max(longest, Clock::now() - start);
  }
  EXPECT_LT(longest, took / 2);
}

// Nobody asks meanwhile: find() does not forget.
TEST(server_memory, finished_jobs_and_their_pictures__are_forgotten_by_time_alone) {
  Folder folder;
  TestServer s(folder.path(), 0, [](auto& o) {
    o.queue.known_seconds = 0.3;
    o.tidy = std::chrono::milliseconds(20);
  });
  const json body = {{"prompt", "x"}, {"steps", 1}, {"width", 64}, {"height", 64}};
  json task = body;
  task["force_task_id"] = "one";
  ASSERT_EQ(s.post("/sdapi/v1/txt2img", task).status, 200);
  const auto job = s.service().queue().find("one");
  ASSERT_TRUE(job.has_value());
  const std::string picture = job->images.at(0).id;
  for (int i = 0; i < 500 && s.service().queue().find("one"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(s.service().queue().find("one"));
  EXPECT_FALSE(s.service().store().find(picture));
}

TEST(server_tasks, task_that_throws__is_told_and_the_next_one_runs) {
  bool ran = false;
  ::testing::internal::CaptureStderr();
  server::Tasks tasks(1);
  tasks.add([] { throw Error("no room"); });
  tasks.add([&] { ran = true; });
  tasks.finish();
  EXPECT_TRUE(server::server_log().wait(std::chrono::seconds(10)));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no room"), std::string::npos);
  EXPECT_TRUE(ran);
}

// Of requests that somebody still works on: many connections could hold a body each.
TEST(server_limits, bodies_that_are_held__are_counted_together) {
  server::Limits limits;
  limits.bodies = 1000;
  std::mutex mutex;
  std::vector<std::shared_ptr<const server::Request>> held;
  server::HttpHandler handler{
      .admit = [](const server::Request&) { return server::Admission{.body_limit = 10'000}; },
      .handle =
          [&](auto request, const auto& exchange) {
            const std::lock_guard lock(mutex);
            held.push_back(std::move(request));
            exchange->reply({.body = "{}"});
          },
      .fault =
          [](int status, const std::string& text) {
            return server::Reply{.status = status, .body = text};
          }};
  server::HttpServer http({"127.0.0.1"}, 0, limits, std::move(handler));
  std::jthread thread([&] { http.run(); });
  const auto status = [&] { return ask(http.port(), "POST", "/", std::string(800, 'x')).status; };
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(status(), 429);
  {
    const std::lock_guard lock(mutex);
    held.clear();
  }
  EXPECT_EQ(status(), 200);
  held.clear();
  http.finish(std::chrono::milliseconds(100));
}

// Their pictures are the queue's, whose limit counts them.
TEST(server_limits, requests_that_wait_for_a_job__hold_no_body) {
  Folder folder;
  TestServer s(folder.path(), 20, [](auto& o) { o.limits.bodies = 300'000; });
  json body = small({{"steps", 1000}, {"prompt", std::string(60'000, 'x')}});
  body["negative_prompt"] = body["infotext"] = body["prompt"];
  Wire waits(s.port());
  waits.send(http_request("POST", "/sdapi/v1/txt2img", body.dump()));
  while (!s.service().queue().running()) {
  }
  const std::string text = "a fox\nSteps: 9, Sampler: Euler a, Seed: 3";
  EXPECT_EQ(s.post("/ebb/v1/inspect", {{"text", text + std::string(200'000, ' ')}}).status, 200);
}

TEST(server_queue, pictures_in_the_folder__count) {
  Folder folder;
  server::QueueLimits limits;
  limits.bytes = 1000;
  server::Queue q(limits, folder / "jobs");
  server::JobSpec spec;
  spec.inputs = {{"init", std::vector<uint8_t>(800)}};
  q.submit(spec);
  EXPECT_THROW(q.submit(spec), server::HttpFault);
}

TEST(server_queue, pictures_of_a_job_of_before__go_with_it) {
  Folder folder;
  {
    server::Queue q({}, folder / "jobs");
    server::JobSpec spec;
    spec.kind = server::JobKind::upscale;
    spec.inputs = {{"image", std::vector<uint8_t>(8)}};
    spec.upscale.image = "image";
    q.submit(spec);
  }
  server::Queue q({}, folder / "jobs");
  const auto job = q.next();
  EXPECT_TRUE(std::filesystem::exists(job->spec.upscale.image)) << job->spec.upscale.image;
  q.finish(*job, server::JobStatus::completed);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "jobs"));
}

TEST(server_stream, pictures_larger_than_the_limit__all_arrive) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.limits.stream_bytes = 100; });
  const json body = {{"prompt", "fox"}, {"size", "256x256"}, {"stream", true}, {"n", 3}};
  Wire wire(s.port());
  wire.send(http_request("POST", "/v1/images/generations", body.dump()));
  while (wire.more()) {
  }
  size_t completed = 0;
  for (size_t at = 0;
       (at = wire.read.find("event: image_generation.completed", at)) != std::string::npos;)
    ++completed, ++at;
  EXPECT_EQ(completed, 3u) << wire.read.substr(0, 500);
}

TEST(server_stream, queue_is_full__429_and_no_stream) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.queue.jobs = 0; });
  EXPECT_EQ(s.post("/v1/images/generations", {{"prompt", "fox"}, {"stream", true}}).status, 429);
}

TEST(server_settings, path_behind_a_name__422) {
  Folder folder;
  std::filesystem::create_directories(folder / "loras");
  const std::vector<io::NamedTensor> tensors = {
      {"lora_unet_x.lora_up.weight", Tensor(DType::f32, {4, 2})},
      {"lora_unet_x.lora_down.weight", Tensor(DType::f32, {2, 4})}};
  io::write_safetensors(folder / "loras/known.safetensors", tensors);
  TestServer s(folder.path(), 1,
               [&](auto& o) { o.folders = {{.path = folder / "loras", .kind = {}}}; });
  s.service().catalogue().wait_for_scan();
  const auto status = [&](const json& lora) {
    return s.post("/ebb/v1/jobs", small({{"lora", lora}})).status;
  };
  for (const char* good :
       {"known", "known:0.8", "known:0.8:0.5", "known:1:lbw=1,0,0,1,0,0,1,0,0,1,0,0"})
    EXPECT_EQ(status(json::array({good})), 202) << good;
  for (const char* bad : {"known:0.8;/etc/passwd:1", "known:x", "known:1:2:3",
                          "known:", "known:1:lbw=1;/etc/passwd", "known:1;/etc/passwd:1:1"}) {
    EXPECT_EQ(status(json::array({bad})), 422) << bad;
    EXPECT_EQ(status(bad), 422) << bad;
  }
}

TEST(server_settings, long_texts_and_lists__are_refused) {
  Folder folder;
  TestServer s(folder.path());
  const auto status = [&](const json& changes) {
    return s.post("/ebb/v1/jobs", small(changes)).status;
  };
  const std::string text(65537, 'x');
  for (const char* name : {"prompt", "schedule_options", "sampler", "lora"})
    EXPECT_EQ(status({{name, text}}), 413) << name;
  EXPECT_EQ(status({{"lora", std::vector<std::string>(65, "x")}}), 422);
  EXPECT_EQ(status({{std::string(2000, 'x'), 1}}), 422);
  EXPECT_EQ(status({{"sampler", std::string(2000, 'x')}}), 400);
}

TEST(server_settings, pictures_that_would_be_too_large__422_with_the_numbers) {
  Folder folder;
  TestServer s(folder.path());
  for (const auto& [name, value] :
       {std::pair{"hires", "4:latent"}, {"outpaint", "8000,8000,0,0"}}) {
    const auto a = s.post("/ebb/v1/jobs", small({{"size", "4096x4096"}, {name, value}}));
    EXPECT_EQ(a.status, 422) << name;
    EXPECT_NE(a.json()["error"]["message"].get<std::string>().find("more than 67"),
              std::string::npos)
        << a.body;
  }
}

}  // namespace ebb::testing
