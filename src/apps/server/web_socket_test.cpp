// WebSockets: who may open one, what its frames are, and peers that behave badly.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/files.h"
#include "support/test_server.h"
#include "support/web_socket.h"

namespace ebb::testing {
namespace {

using std::chrono::milliseconds;

// The number of those that read.
bool become(TestServer& s, size_t count) {
  for (int i = 0; i < 400 && s.service().queue().subscribers() != count; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  return s.service().queue().subscribers() == count;
}

class WebSockets : public ::testing::Test {
 protected:
  bool subscribers_become(size_t count) { return become(server_, count); }
  Folder folder_;
  TestServer server_{folder_.path(), 1, [](auto& o) { o.limits.streams = 2; }};
};

}  // namespace

// A page of another site may open WebSockets wherever it likes: the browser tells its Origin alone.
TEST_F(WebSockets, pages_of_other_origins_and_hosts__403) {
  for (const char* origin : {"https://evil.example", "null", "http://127.0.0.1:1"})
    EXPECT_EQ(WebSocketClient(server_.port(), "/ws", str("Origin: ", origin, "\r\n")).status(), 403)
        << origin;
  EXPECT_EQ(WebSocketClient(server_.port(), "/ws", "Sec-Fetch-Site: cross-site\r\n").status(), 403);
  EXPECT_EQ(WebSocketClient(server_.port(), "/ws", "", "evil.example").status(), 403);
  EXPECT_EQ(server_.service().queue().subscribers(), 0u);
  EXPECT_EQ(WebSocketClient(server_.port(), "/ws", "Origin: http://127.0.0.1\r\n").status(), 101);
}

TEST(web_sockets, where_there_is_a_key__it_is_needed) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.guard.key = "secret"; });
  EXPECT_EQ(WebSocketClient(s.port(), "/ws").status(), 401);
  EXPECT_EQ(WebSocketClient(s.port(), "/ws", "Authorization: Bearer no\r\n").status(), 401);
  EXPECT_EQ(WebSocketClient(s.port(), "/ws", "Authorization: Bearer secret\r\n").status(), 101);
}

TEST_F(WebSockets, plain_request__400) {
  EXPECT_EQ(server_.get("/ws").status, 400);
  const std::string upgrade = "Upgrade: websocket\r\n", connection = "Connection: Upgrade\r\n";
  EXPECT_EQ(server_.get("/ws", upgrade).status, 400);
  EXPECT_EQ(server_.get("/ws", connection + upgrade).status, 400) << "without a key";
  EXPECT_EQ(ask(server_.port(), "HEAD", "/ws", "", connection + upgrade).status, 400);
  EXPECT_EQ(server_.get("/ws", connection + "Upgrade: notwebsocket\r\n").status, 400);
  EXPECT_EQ(server_.get("/ws?clientId=" + std::string(500, 'x')).status, 400);
  EXPECT_TRUE(subscribers_become(0));
}

TEST_F(WebSockets, pings__are_answered_and_what_the_peer_says_is_dropped) {
  WebSocketClient socket(server_.port(), "/ws?clientId=me");
  ASSERT_EQ(socket.status(), 101);
  EXPECT_EQ(socket.answer().header("x-content-type-options"), "nosniff");
  EXPECT_EQ(socket.next()->json()["data"]["sid"], "me");
  socket.send(WebSocketClient::text, R"({"type":"feature_flags","data":{}})");
  socket.send(WebSocketClient::ping, "abc");
  const auto pong = socket.next();
  ASSERT_TRUE(pong);
  EXPECT_EQ(pong->kind, WebSocketClient::pong);
  EXPECT_EQ(pong->data, "abc");
}

TEST_F(WebSockets, silent_ones__are_pinged) {
  Folder folder;
  TestServer s(folder.path() + "/x", 1, [](auto& o) { o.limits.ping = milliseconds(30); });
  WebSocketClient socket(s.port(), "/ws");
  EXPECT_EQ(socket.next()->kind, WebSocketClient::text);
  for (int i = 0; i < 3; ++i) {
    const auto m = socket.next();
    ASSERT_TRUE(m);
    EXPECT_EQ(m->kind, WebSocketClient::ping);
  }
}

// Where the peer does not close its end, by the time that the next ping may take.
TEST(web_sockets, peers_that_leave_or_say_nonsense__are_forgotten) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) {
    o.limits.ping = milliseconds(100), o.limits.write_stall = milliseconds(500);
  });
  const auto readers_become = [&](size_t count) { return become(s, count); };
  {
    WebSocketClient leaves(s.port(), "/ws"), says_goodbye(s.port(), "/ws");
    EXPECT_EQ(leaves.status(), 101);
    ASSERT_TRUE(readers_become(2));
    says_goodbye.send(WebSocketClient::close, "");
    EXPECT_TRUE(readers_become(1));
    bool answered = false;
    while (const auto m = says_goodbye.next()) answered |= m->kind == WebSocketClient::close;
    EXPECT_TRUE(answered);
  }
  EXPECT_TRUE(readers_become(0));
  WebSocketClient unmasked(s.port(), "/ws"), huge(s.port(), "/ws");
  EXPECT_EQ(huge.status(), 101);
  ASSERT_TRUE(readers_become(2));
  unmasked.wire().send("\x81\x01x");
  huge.wire().send(std::string("\x82\xff\0\0\0\x7f\xff\xff\xff\xff", 10) + std::string(4, '\0'));
  EXPECT_TRUE(readers_become(0));
  EXPECT_EQ(s.get("/internal/ping").status, 200);
}

TEST_F(WebSockets, count__is_that_of_streams) {
  WebSocketClient a(server_.port(), "/ws"), b(server_.port(), "/api/ws");
  EXPECT_EQ(a.status(), 101);
  EXPECT_EQ(b.status(), 101);
  EXPECT_EQ(WebSocketClient(server_.port(), "/ws").status(), 503);
  EXPECT_EQ(server_.get("/ebb/v1/events").status, 503);
}

TEST_F(WebSockets, end_of_the_server__is_told) {
  WebSocketClient socket(server_.port(), "/ws");
  EXPECT_EQ(socket.next()->kind, WebSocketClient::text);
  ASSERT_TRUE(subscribers_become(1));
  server_.service().stop();
  const auto last = socket.next();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->kind, WebSocketClient::close);
  EXPECT_EQ(last->data, "\x03\xe9");  // 1001: going away
}

// Its messages are not told again: it has to begin anew, and is told so.
TEST(web_sockets, one_that_is_not_read__is_closed_with_a_reason) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.limits.stream_bytes = 20000; });
  WebSocketClient socket(s.port(), "/ws?clientId=me");
  ASSERT_EQ(socket.status(), 101);
  ASSERT_TRUE(become(s, 1));
  server::JobSpec spec;  // a prompt with a node of a long name
  spec.keeps = false;
  spec.note["comfy"] = {{"client", "me"},
                        {"sampler", std::string(60000, 'x')},
                        {"class", "x"},
                        {"shows", nlohmann::json::object()},
                        {"graph", nlohmann::json::object()},
                        {"number", 1}};
  for (int i = 0; i < 300; ++i) s.service().queue().cancel(s.service().queue().submit(spec)->id);
  std::string last;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);  // pings come on
  while (std::chrono::steady_clock::now() < end) {
    const auto m = socket.next();
    if (!m) break;
    if (m->kind == WebSocketClient::close) last = m->data;
  }
  EXPECT_NE(last.find("does not read"), last.npos) << last;
}

}  // namespace ebb::testing
