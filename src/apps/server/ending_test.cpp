// The end of a server: who still waits for an answer gets it, or the end of the connection.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "apps/server/http.h"
#include "apps/server/queue.h"
#include "support/files.h"
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

// What close() cuts off is for the next process, what somebody cancelled is not.
TEST(server_ending, jobs__stay_unless_somebody_cancelled_them) {
  const Folder folder;
  server::Queue q({}, folder.path());
  const auto submit = [&](const char* id) {
    server::JobSpec spec;
    spec.id = id;
    return q.submit(std::move(spec));
  };
  submit("unwanted"), submit("waits");
  const auto running = q.next();
  q.cancel("unwanted");
  q.close(false);
  q.finish(*running, server::JobStatus::cancelled);
  const auto left = server::read_jobs(folder.path(), {});
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0]->id, "waits");
}

TEST(server_ending, order__is_told_where_a_job_comes_before_others) {
  server::Queue q({}, "");
  const auto submit = [&](const char* client) {
    server::JobSpec spec;
    spec.client = client;
    q.submit(std::move(spec));
  };
  submit("a"), submit("a");
  const int64_t before = q.last_event();
  submit("a");
  EXPECT_EQ(q.last_event(), before + 1);
  submit("b");  // has its turn behind the first of a
  EXPECT_EQ(q.last_event(), before + 3);
}

// Clients choose ids.
TEST(server_ending, job__is_not_cancelled_for_another_of_its_id) {
  server::Queue q({}, "");
  server::JobSpec spec;
  spec.id = "mine";
  const auto first = q.submit(spec);
  q.cancel("mine");
  q.submit(spec);
  EXPECT_FALSE(q.cancel(*first));
  EXPECT_EQ(q.find("mine")->status, server::JobStatus::queued);
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
