// The end of a server: who still waits for an answer gets it, or the end of the connection.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "apps/server/http.h"
#include "apps/server/queue.h"
#include "support/http_client.h"

namespace ebb::testing {

using std::chrono::milliseconds;

// As of a plan, whose request waits.
TEST(server_ending, task_that_waits_when_the_queue_is_closed__is_run) {
  server::Queue q({}, "");
  bool ran = false;
  ASSERT_TRUE(q.run_idle([&] { ran = true; }));
  q.close(false);
  EXPECT_FALSE(q.run_idle([] {})) << "it is closed";
  EXPECT_EQ(q.next(), nullptr);
  EXPECT_TRUE(ran);
}

TEST(server_ending, connection_that_is_cut_off__is_closed_when_run_returns) {
  std::shared_ptr<server::Exchange> held;
  server::HttpServer http({"127.0.0.1"}, 0, {},
                          {.admit = [](const auto&) { return server::Admission{}; },
                           .handle =
                               [&](const auto&, const auto& exchange) {
                                 held = exchange;
                                 http.finish(milliseconds(50));
                               },
                           .fault = [](int, const auto&) { return server::Reply{}; }});
  Wire wire(http.port());
  wire.send(http_request("GET", "/"));
  http.run();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(wire.more(milliseconds(2000)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1000)) << "its end has come";
  held = nullptr;
}

}  // namespace ebb::testing
