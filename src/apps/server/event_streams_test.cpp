// Event streams whose readers are slow: what waits for them is bounded by bytes, of each and of
// all, and they go on from where things stand.
#include <gtest/gtest.h>

#include <future>

#include "support/files.h"
#include "support/test_server.h"
#include "support/web_socket.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using server::Sent;
using std::chrono::milliseconds;

// The HTTP layer alone: each request opens a stream.
class Streams {
 public:
  explicit Streams(const server::Limits& limits, bool are_websockets = false)
      : http_({"127.0.0.1"}, 0, limits,
              {.admit = [](const server::Request&) { return server::Admission{}; },
               .handle =
                   [this, are_websockets](auto request, const auto& exchange) {
                     exchange->on_leave([this] { ++left; });
                     opened_.set_value(are_websockets ? exchange->websocket(*request)
                                                      : exchange->stream());
                   },
               .fault =
                   [](int status, const std::string& text) {
                     return server::Reply{.status = status, .body = text};
                   }}),
        thread_([this] { http_.run(); }) {}
  ~Streams() { http_.finish(milliseconds(50)); }
  // Of the request that was sent last.
  std::shared_ptr<server::EventStream> opened() {
    auto out = opened_.get_future().get();
    opened_ = {};
    return out;
  }
  std::shared_ptr<server::EventStream> opened(Wire& by) {
    by.send(http_request("GET", "/"));
    return opened();
  }
  uint16_t port() const { return http_.port(); }
  bool left_become(int count) const {
    for (int i = 0; i < 1000 && left != count; ++i) std::this_thread::sleep_for(milliseconds(10));
    return left == count;
  }
  std::atomic<int> left = 0;

 private:
  std::promise<std::shared_ptr<server::EventStream>> opened_;
  server::HttpServer http_;
  std::jthread thread_;
};

std::vector<std::pair<int64_t, std::string>> events_in(const std::string& text) {
  std::vector<std::pair<int64_t, std::string>> out;
  for (size_t at = 0; (at = text.find("id: ", at)) != text.npos; ++at) {
    const size_t name = text.find("event: ", at) + 7;
    out.emplace_back(std::stoll(text.substr(at + 4)),
                     text.substr(name, text.find('\n', name) - name));
  }
  return out;
}

}  // namespace

TEST(event_log, kept_events__are_bounded_by_number_and_by_bytes) {
  constexpr size_t one = sizeof(server::Event) + 1 + 20;  // name, and 18 letters as JSON
  server::EventLog by_number(3, 10000), by_bytes(100, 3 * one);
  for (int i = 1; i <= 5; ++i) {
    by_number.add("x", i);
    by_bytes.add("x", std::string(18, 'x'));
  }
  EXPECT_EQ(by_number.since(2)->size(), 3u);
  EXPECT_FALSE(by_number.since(1)) << "the second one is forgotten";
  EXPECT_EQ(by_bytes.since(2)->front()->number, 3);
  EXPECT_FALSE(by_bytes.since(1));
  EXPECT_EQ(by_bytes.bytes(), 3 * one);
  EXPECT_TRUE(by_bytes.since(5)->empty());
  EXPECT_FALSE(by_bytes.since(6)) << "it is still to come";
  by_bytes.add("x", std::string(3 * one, 'x'));
  EXPECT_EQ(by_bytes.bytes(), 0u);
  EXPECT_FALSE(by_bytes.since(5)) << "one that is larger than all that is kept";
}

TEST(event_log, subscriber__is_called_until_nobody_wants_it) {
  server::EventLog log(10, 1000);
  int calls = 0;
  auto wanted = log.subscribe([&](const auto&, const auto&) { ++calls; });
  log.add("x", 1);
  EXPECT_EQ(log.subscribers(), 1u);
  wanted = nullptr;
  EXPECT_EQ(log.subscribers(), 0u);
  log.add("x", 1);
  EXPECT_EQ(calls, 1);
}

TEST(event_log, subscriber_that_throws__is_the_fault_of_none_else) {
  server::Queue queue({}, "");
  int told = 0, ended = 0;
  const auto one = queue.subscribe([](const auto&, const auto&) { throw std::bad_alloc(); });
  const auto other = queue.subscribe([&](const auto&, const auto&) { ++told; });
  queue.submit({});
  const auto job = queue.next();
  queue.when_finished(*job, [&](const auto&) { ++ended; });
  EXPECT_NO_THROW(queue.finish(*job, server::JobStatus::completed));
  EXPECT_EQ(told, 3) << "queued, started, done";
  EXPECT_EQ(ended, 1);
}

TEST(event_streams, what_waits_for_one__is_bounded_and_it_is_told_when_all_is_taken) {
  server::Limits limits;
  limits.stream_bytes = 20000;
  Streams s(limits);
  Wire reader(s.port());
  const auto stream = s.opened(reader);
  ASSERT_EQ(stream->send(std::string(beyond_socket_buffers, 'x')), Sent::yes)
      << "of any size, if nothing waits";
  EXPECT_EQ(stream->send("y"), Sent::behind);
  std::atomic<bool> taken = false;
  stream->when_taken([&] { taken = true; });
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(taken);
  ASSERT_TRUE(reader.until(std::string(1000, 'x')));
  size_t read = 0;
  while (!taken && reader.more()) read += std::exchange(reader.read, "").size();
  EXPECT_GT(read, beyond_socket_buffers / 4) << "the system keeps the rest";
  EXPECT_EQ(stream->send("the next"), Sent::yes);
  EXPECT_TRUE(reader.until("the next"));
}

TEST(event_streams, large_messages_of_all__are_bounded) {
  server::Limits limits;
  limits.streams_bytes = beyond_socket_buffers + beyond_socket_buffers / 2;
  Streams s(limits);
  Wire second(s.port());
  const auto b = s.opened(second);
  {
    Wire first(s.port());
    const auto a = s.opened(first);
    ASSERT_EQ(a->send(std::string(beyond_socket_buffers, 'x')), Sent::yes);
    EXPECT_EQ(b->send(std::string(beyond_socket_buffers, 'x')), Sent::refused);
    EXPECT_EQ(b->send("small ones pass"), Sent::yes);
    ASSERT_TRUE(second.until("small ones pass"));
  }
  ASSERT_TRUE(s.left_become(1));
  EXPECT_EQ(b->send(std::string(beyond_socket_buffers, 'x')), Sent::yes)
      << "what the first left behind is free";
}

TEST(event_streams, last_message__is_among_the_large_ones_of_all) {
  server::Limits limits;
  limits.streams_bytes = beyond_socket_buffers + beyond_socket_buffers / 2;
  Streams s(limits);
  Wire first(s.port()), second(s.port());
  const auto a = s.opened(first), b = s.opened(second);
  ASSERT_EQ(a->close(std::string(beyond_socket_buffers, 'x')), Sent::yes);
  EXPECT_EQ(b->close(std::string(beyond_socket_buffers, 'x')), Sent::refused);
  EXPECT_EQ(b->send("it is open still"), Sent::yes);
  EXPECT_EQ(b->close("until now"), Sent::yes);
  EXPECT_TRUE(second.until("it is open still"));
  EXPECT_TRUE(second.until("until now"));
  while (first.more()) {
  }
  EXPECT_GT(first.read.size(), beyond_socket_buffers) << "all of it arrives";
}

// Another client does not read: the pictures are not sent, and that is told.
TEST(event_streams, pictures_that_do_not_fit__are_an_error_event) {
  const Folder folder;
  TestServer s(folder.path(), 0, [](auto& o) {
    o.limits.stream_bytes = 1000, o.limits.streams_bytes = size_t{1} << 20;
    o.limits.small_answer = 1000;
  });
  Wire stuck(s.port()), asks(s.port());
  stuck.send(http_request("GET", "/ebb/v1/events"));
  ASSERT_TRUE(stuck.until("event: state"));
  for (int i = 0; i < 20; ++i) {  // until the system takes no more of them
    s.service().queue().tell("model", {{"name", std::string(beyond_socket_buffers / 16, 'x')}});
    std::this_thread::sleep_for(milliseconds(20));
  }
  asks.send(http_request("POST", "/v1/images/generations",
                         json{{"prompt", "x"}, {"size", "256x256"}, {"stream", true}}.dump()));
  while (asks.more()) {
  }
  EXPECT_NE(asks.read.find("\"code\":\"too_much_waits\""), std::string::npos)
      << asks.read.substr(0, 500);
}

TEST(event_streams, websocket_that_is_closed_for_a_reason__is_told_it) {
  Streams s({}, true);
  WebSocketClient reader(s.port(), "/");
  s.opened()->close("too slow");
  const auto last = reader.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, WebSocketClient::close);
  EXPECT_EQ(last->data, "\x03\xf5too slow");  // 1013: try again later
}

// More happens than is kept for it, and then than the log has: it goes on from the state.
TEST(event_streams, reader_that_falls_behind__gets_the_state_and_what_comes_then) {
  const Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) {
    o.limits.stream_bytes = 20000;
    o.queue.event_bytes = 100000;
  });
  Wire reader(s.port());
  reader.send(http_request("GET", "/ebb/v1/events"));
  ASSERT_TRUE(reader.until("event: state"));
  auto& queue = s.service().queue();
  for (int i = 0; i < 4000; ++i) queue.tell("model", {{"name", std::string(8000, 'x')}});
  EXPECT_LE(queue.events_since(queue.last_event() - 12)->size(), 12u);
  EXPECT_FALSE(queue.events_since(queue.last_event() - 20));
  ASSERT_TRUE(reader.until(str("id: ", queue.last_event(), "\n")))
      << "itself, or the state behind it";
  const auto all = events_in(reader.read);
  EXPECT_LT(all.size(), 3000u) << "the system keeps some for a peer that does not read";
  size_t states = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    states += all[i].second == "state";
    if (i > 0 && all[i].second != "state") {
      EXPECT_EQ(all[i].first, all[i - 1].first + 1) << "none is left out but for a state";
    }
  }
  EXPECT_GE(states, 2u);
  EXPECT_EQ(all.back().first, queue.last_event());
  queue.tell("model", {{"name", "and one more"}});
  EXPECT_TRUE(reader.until("and one more"));
}

// Clients that read nothing at all, and go on from the beginning: what is kept for them.
TEST(event_streams, many_that_read_nothing__do_not_take_the_memory_of_the_others) {
  const Folder folder;
  TestServer s(folder.path(), 0, [](auto& o) {
    o.limits.streams = 8, o.limits.stream_bytes = 1000, o.limits.streams_bytes = size_t{10} << 20;
    o.queue.known = 40;
  });
  for (int i = 0; i < 40; ++i) {  // of a state of about 8 MB
    const auto a = s.post("/ebb/v1/jobs", {{"prompt", std::string(65000, 'x')},
                                           {"negative", std::string(65000, '\\')},
                                           {"size", "8x8"},
                                           {"steps", 1}});
    ASSERT_EQ(a.status, 202) << a.body;
    s.finished(a.json()["id"]);
  }
  std::vector<std::unique_ptr<Wire>> readers;
  for (int i = 0; i < 8; ++i) {
    readers.push_back(std::make_unique<Wire>(s.port()));
    readers.back()->send(http_request("GET", "/ebb/v1/events"));
    ASSERT_TRUE(readers.back()->until("\r\n\r\n"));
  }
  for (const auto& r : readers)
    while (!r->read.ends_with("\n\n") && r->more()) {  // one event
    }
  size_t refused = 0;
  for (const auto& r : readers) refused += r->read.find("too much waits") != std::string::npos;
  EXPECT_GE(refused, 1u);
  EXPECT_LT(refused, 8u) << "one passes always";
}

}  // namespace ebb::testing
