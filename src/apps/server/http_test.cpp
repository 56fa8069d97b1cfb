// Connections: slow, half-closed and pipelined ones, those that leave, HEAD, and event streams.
#include "apps/server/http.h"

#include <gtest/gtest.h>

#include <list>
#include <thread>

#include "support/test_server.h"

namespace ebb::testing {
namespace {

using server::Limits;
using std::chrono::milliseconds;

// Answers what `handle` says; "/stream" gets an event of that many bytes.
class Served {
 public:
  explicit Served(const Limits& limits, size_t event = 0)
      : http_(
            {"127.0.0.1"}, 0, limits,
            {.admit = [](const server::Request&) { return server::Admission{.body_limit = 1000}; },
             .handle =
                 [this, event](const auto& request, const auto& exchange) {
                   if (request->path != "/stream") return exchange->reply({.body = request->path});
                   stream_ = exchange->stream();
                   stream_->send(std::string(event, 'x') + "\n\n");
                 },
             .fault =
                 [](int status, const std::string& text) {
                   return server::Reply{.status = status, .body = text};
                 }}) {
    thread_ = std::jthread([this] { http_.run(); });
  }
  ~Served() {
    http_.post([this] { stream_ = nullptr; });
    http_.finish(milliseconds(100));
    thread_.join();
  }
  uint16_t port() const { return http_.port(); }

 private:
  std::shared_ptr<server::EventStream> stream_;
  server::HttpServer http_;
  std::jthread thread_;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json slow_job(const std::string& id) {
  return {{"prompt", "x"}, {"steps", 1000}, {"width", 64}, {"height", 64}, {"force_task_id", id}};
}

bool comes_to(const std::function<bool()>& what) {
  for (int i = 0; i < 400 && !what(); ++i) std::this_thread::sleep_for(milliseconds(10));
  return what();
}

// What a server is made of holds each other; an exchange that outlives it may not keep all of it.
TEST(http, answer_and_stream_that_outlive_the_server__leave_nothing_of_it) {
  const auto held = std::make_shared<int>();
  std::shared_ptr<server::Exchange> silent, answered;
  std::shared_ptr<server::EventStream> stream;
  {
    server::HttpServer http({"127.0.0.1"}, 0, {},
                            {.admit = [](const auto&) { return server::Admission{}; },
                             .handle =
                                 [&, held](const auto& request, const auto& exchange) {
                                   (request->path == "/silent" ? silent : answered) = exchange;
                                   if (request->path == "/stream") stream = exchange->stream();
                                   if (request->path == "/last") http.finish(milliseconds(50));
                                 },
                             .fault = [](int, const auto&) { return server::Reply{}; }});
    const std::jthread runs([&] { http.run(); });
    std::list<Wire> wires;
    for (const char* path : {"/silent", "/stream", "/last"}) {
      wires.emplace_back(http.port());
      wires.back().send(http_request("GET", path, ""));
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  ASSERT_TRUE(silent && answered && stream);
  EXPECT_GT(held.use_count(), 1);
  answered->reply({});
  stream->send("x");
  silent = answered = nullptr, stream = nullptr;
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace

TEST(server_http, slow_header_of_a_later_request__has_the_time_of_a_header_not_that_of_silence) {
  Limits limits;
  limits.header_time = milliseconds(200);
  limits.idle = milliseconds(20'000);
  const Served s(limits);
  Wire wire(s.port());
  wire.send(http_request("GET", "/a"));
  EXPECT_EQ(wire.answer().body, "/a");
  std::this_thread::sleep_for(milliseconds(400));  // silence is no header
  wire.send(http_request("GET", "/b"));
  EXPECT_EQ(wire.answer().body, "/b");
  wire.send("GET /c HT");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(wire.until("\r\n\r\n"));
  EXPECT_LT(seconds_since(start), 5);
}

TEST(server_http, body_that_stops__is_told_so) {
  Limits limits;
  limits.slow_body = milliseconds(200);
  const Served s(limits);
  Wire wire(s.port());
  wire.send("POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n");
  wire.send(std::string(500, 'x'));
  const auto start = std::chrono::steady_clock::now();
  const HttpAnswer a = wire.answer();
  EXPECT_EQ(a.status, 408);
  EXPECT_EQ(a.body, "the body stopped behind 500 bytes");
  EXPECT_LT(seconds_since(start), 5);
}

TEST(server_http, peer_that_sends_no_more__gets_its_answers) {
  Folder folder;
  TestServer s(folder.path());
  const nlohmann::json text = {{"text", "a fox\nSteps: 9, Sampler: Euler a, Seed: 3"}};
  for (int i = 0; i < 20; ++i) {
    Wire wire(s.port());
    wire.send(http_request("POST", "/ebb/v1/inspect", text.dump()));
    wire.end();
    EXPECT_EQ(wire.answer().status, 200) << i;
  }
}

TEST(server_http, requests_one_behind_the_other__are_answered_in_order) {
  const Served s(Limits{});
  Wire wire(s.port());
  wire.send(http_request("GET", "/a") + http_request("POST", "/b", "body") +
            http_request("GET", "/c"));
  wire.end();
  for (const char* body : {"/a", "/b", "/c"}) EXPECT_EQ(wire.answer().body, body);
  EXPECT_FALSE(wire.more());  // and it is closed
}

TEST(server_http, peer_that_leaves_behind_more_bytes__has_its_job_cancelled) {
  Folder folder;
  TestServer s(folder.path(), 20);
  {
    Wire wire(s.port());
    wire.send(http_request("POST", "/sdapi/v1/txt2img", slow_job("left").dump()) + "\r\n");
    ASSERT_TRUE(comes_to([&] { return s.service().queue().running().has_value(); }));
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE(comes_to(
      [&] { return s.service().queue().find("left")->status == server::JobStatus::cancelled; }));
}

TEST(server_http, head_of_an_event_stream__has_no_events) {
  Folder folder;
  TestServer s(folder.path());
  Wire wire(s.port());
  wire.send(http_request("HEAD", "/ebb/v1/events"));
  while (wire.more(std::chrono::seconds(5))) {
  }
  EXPECT_TRUE(wire.read.starts_with("HTTP/1.1 200")) << wire.read;
  EXPECT_TRUE(wire.read.ends_with("\r\n\r\n")) << wire.read;
  EXPECT_EQ(wire.read.find("event:"), wire.read.npos);
  EXPECT_TRUE(comes_to([&] { return s.service().queue().subscribers() == 0; }));
}

TEST(server_http, large_event__may_take_longer_than_a_stall) {
  constexpr size_t size = size_t{24} << 20;
  Limits limits;
  limits.write_stall = milliseconds(800);
  const Served s(limits, size);
  Wire wire(s.port());
  wire.send(http_request("GET", "/stream"));
  const auto start = std::chrono::steady_clock::now();
  while (wire.read.size() < size && wire.more(std::chrono::seconds(2)))
    std::this_thread::sleep_for(milliseconds(5));  // 64 kB at most
  EXPECT_GE(wire.read.size(), size);
  EXPECT_GT(seconds_since(start), 1) << "it did not take longer";
}

TEST(server_http, connections_that_asked_nothing__do_not_keep_the_server) {
  Folder folder;
  TestServer s(folder.path());
  const Wire wire(s.port());
  EXPECT_EQ(s.get("/internal/ping").status, 200);  // the other one is accepted, too
  const auto start = std::chrono::steady_clock::now();
  s.stop();
  EXPECT_LT(seconds_since(start), 2);
}

TEST(server_http, page_with_a_slash_behind_it__leads_to_the_page) {
  Folder folder;
  TestServer s(folder.path());
  if (s.get("/training").status == 404) GTEST_SKIP() << "built without its pages";
  for (const char* path : {"/training/", "/training/?id=1"}) {
    const auto a = s.get(path);
    EXPECT_EQ(a.status, 308) << path;
    EXPECT_EQ(a.header("location"), "../training");
  }
  EXPECT_EQ(s.get("/training//").status, 404);
  EXPECT_EQ(ask(s.port(), "HEAD", "/training/").status, 308);
}

TEST(server_http, options_of_no_browser__204_and_of_another_page_403) {
  Folder folder;
  TestServer s(folder.path());
  const auto a = ask(s.port(), "OPTIONS", "/sdapi/v1/txt2img");
  EXPECT_EQ(a.status, 204);
  EXPECT_NE(a.header("allow").find("POST"), std::string::npos) << a.head;
  EXPECT_EQ(ask(s.port(), "OPTIONS", "/sdapi/v1/txt2img", "", "Origin: http://a\r\n").status, 403);
}

}  // namespace ebb::testing
