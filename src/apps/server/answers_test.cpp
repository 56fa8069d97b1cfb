// Plain answers to clients that do not read them: what waits is bounded by bytes.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "apps/server/http.h"
#include "support/http_client.h"

namespace ebb::testing {
namespace {

using std::chrono::milliseconds;

// The HTTP layer alone: /large is answered with so much, all else with a letter.
class Answers {
 public:
  explicit Answers(const server::Limits& limits)
      : http_({"127.0.0.1"}, 0, limits,
              {.admit = [](const server::Request&) { return server::Admission{}; },
               .handle =
                   [](auto request, const auto& exchange) {
                     const size_t bytes = request->path == "/large" ? beyond_socket_buffers : 1;
                     exchange->reply({.body = std::string(bytes, 'x')});
                   },
               .fault =
                   [](int status, const std::string& text) {
                     return server::Reply{.status = status, .body = text};
                   }}),
        thread_([this] { http_.run(); }) {}
  ~Answers() { http_.finish(milliseconds(50)); }
  uint16_t port() const { return http_.port(); }
  int status_of(const std::string& path) const { return ask(port(), "GET", path).status; }
  // A client that has asked for the large answer, of which it reads the beginning alone.
  std::unique_ptr<Wire> reader() const {
    auto out = std::make_unique<Wire>(port());
    out->send(http_request("GET", "/large"));
    EXPECT_TRUE(out->until("\r\n\r\n"));
    return out;
  }

 private:
  server::HttpServer http_;
  std::jthread thread_;
};

}  // namespace

TEST(server_answers, what_waits_for_its_readers__is_bounded_of_an_address_and_of_all) {
  for (const bool of_all : {false, true}) {
    server::Limits limits;
    (of_all ? limits.answers : limits.answers_of_address) = 2 * beyond_socket_buffers;
    const Answers s(limits);
    std::vector<std::unique_ptr<Wire>> readers;
    size_t refused = 0;
    for (int i = 0; i < 12; ++i) {
      readers.push_back(s.reader());
      refused += readers.back()->read.starts_with("HTTP/1.1 503");
    }
    EXPECT_EQ(refused, 10u) << "two wait";
    EXPECT_EQ(s.status_of("/small"), 200);
    EXPECT_EQ(readers[0]->answer().body.size(), beyond_socket_buffers)
        << "nothing of it is missing";
    EXPECT_EQ(s.status_of("/large"), 200) << "the other one waits, and this one";
    EXPECT_EQ(s.status_of("/large"), 200) << "it counts no more";
  }
}

TEST(server_answers, answer_of_any_size__is_given_where_none_waits) {
  server::Limits limits;
  limits.answers = limits.answers_of_address = 1000;
  const Answers s(limits);
  EXPECT_EQ(s.status_of("/large"), 200);
  const auto waits = s.reader();
  EXPECT_EQ(s.status_of("/large"), 503);
  EXPECT_EQ(ask(s.port(), "HEAD", "/large").status, 200) << "it has no body";
}

TEST(server_answers, reader_that_stops__is_closed_and_counts_no_more) {
  server::Limits limits;
  limits.answers_of_address = beyond_socket_buffers;
  limits.write_stall = milliseconds(300);
  const Answers s(limits);
  const auto stopped = s.reader();
  ASSERT_EQ(s.status_of("/large"), 503);
  int status = 503;
  for (int i = 0; i < 500 && status == 503; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    status = s.status_of("/large");
  }
  EXPECT_EQ(status, 200);
  while (stopped->more()) {
  }
  EXPECT_LT(stopped->read.size(), beyond_socket_buffers);
}

}  // namespace ebb::testing
