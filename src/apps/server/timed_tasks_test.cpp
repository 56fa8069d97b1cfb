// Tasks that hang cost those who wait for them alone.
#include "apps/server/timed_tasks.h"

#include <gtest/gtest.h>

#include <future>

#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using server::TimedTasks;
using std::chrono::milliseconds;

// A task that hangs until this ends.
class Hang {
 public:
  ~Hang() { end(); }
  std::function<void()> task() const {
    return [gate = gate_] { gate.wait(); };
  }
  void end() {
    if (!std::exchange(is_over_, true)) ended_.set_value();
  }

 private:
  std::promise<void> ended_;
  std::shared_future<void> gate_ = ended_.get_future().share();
  bool is_over_ = false;
};

}  // namespace

TEST(timed_tasks, tasks__run_in_order_and_what_they_throw_is_not_the_end) {
  TimedTasks tasks(std::chrono::seconds(20));
  std::promise<void> last;
  std::string order;
  std::atomic<int> late = 0;
  tasks.add([&] { order += 'a'; }, [&] { ++late; });
  tasks.add([] { throw std::runtime_error("it is thrown by a test"); }, [&] { ++late; });
  tasks.add([&] { order += 'b', last.set_value(); }, [&] { ++late; });
  last.get_future().wait();
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(late, 0);
  EXPECT_TRUE(tasks.finish(std::chrono::seconds(20)));
}

TEST(timed_tasks, task_that_hangs__is_late_and_those_behind_it_are_not_run) {
  TimedTasks tasks(milliseconds(50));
  Hang hang;
  std::atomic<int> late = 0, ran = 0;
  tasks.add(hang.task(), [&] { ++late; });
  tasks.add([&] { ++ran; }, [&] { ++late; });
  for (int i = 0; i < 1000 && late < 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  ASSERT_EQ(late, 2);
  tasks.add([&] { ++ran; }, [&] { ++late; });
  EXPECT_EQ(late, 3) << "at once";
  EXPECT_FALSE(tasks.finish(milliseconds(10)));
  hang.end();
  EXPECT_TRUE(tasks.finish(std::chrono::seconds(20)));
  EXPECT_EQ(ran, 0);
}

TEST(timed_tasks, task_that_goes_on__lets_others_run_again) {
  TimedTasks tasks(milliseconds(50));
  Hang hang;
  std::promise<void> late;
  tasks.add(hang.task(), [&] { late.set_value(); });
  late.get_future().wait();
  hang.end();
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  for (int i = 0; i < 1000 && !*ran; ++i) {
    tasks.add([ran] { *ran = true; }, [] {});
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(*ran);
}

// A mount whose server is gone: the threads that read from it do not come back.
TEST(training_server, folder_that_hangs__503_and_all_else_goes_on) {
  const Folder folder;
  TestServer s(folder.path(), 1,
               [&](auto& o) { o.folder_time = milliseconds(100), o.runs = {folder.path()}; });
  Hang hang;
  s.service().folders().add(hang.task(), [] {});
  for (const char* path : {"", "/0000000000000000", "/0000000000000000/picture?step=1"}) {
    const auto a = s.get(str("/ebb/v1/training", path));
    EXPECT_EQ(a.status, 503) << path;
    EXPECT_NE(a.body.find("--runs"), std::string::npos) << a.body;
    EXPECT_EQ(a.header("retry-after"), "5");
  }
  EXPECT_EQ(s.get("/ebb/v1/jobs").status, 200);
  EXPECT_EQ(s.post("/sdapi/v1/txt2img", {{"prompt", "fox"}, {"steps", 1}}).status, 200);
  hang.end();
  int status = 503;
  for (int i = 0; i < 200 && status == 503; ++i) status = s.get("/ebb/v1/training").status;
  EXPECT_EQ(status, 200);
}

// Likewise of models: no thread that others need waits for them.
TEST(server_catalogue, folder_of_models_that_hangs__503_and_all_else_goes_on) {
  const Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.folder_time = milliseconds(100); });
  s.service().catalogue().wait_for_scan();
  Hang hang;
  s.service().scans().add(hang.task(), [] {});
  std::vector<std::unique_ptr<Wire>> wait;
  for (int i = 0; i < 4; ++i) {
    wait.push_back(std::make_unique<Wire>(s.port()));
    wait.back()->send(http_request("POST", "/sdapi/v1/refresh-checkpoints"));
  }
  EXPECT_EQ(s.post("/sdapi/v1/txt2img", {{"prompt", "fox"}, {"steps", 1}}).status, 200);
  for (const auto& w : wait) {
    const HttpAnswer a = w->answer();
    EXPECT_EQ(a.status, 503);
    EXPECT_NE(a.body.find("folders of models"), std::string::npos) << a.body;
  }
  hang.end();
  int status = 503;
  for (int i = 0; i < 200 && status == 503; ++i)
    status = s.post("/sdapi/v1/refresh-checkpoints", json::object()).status;
  EXPECT_EQ(status, 200);
}

TEST(server_catalogue, those_who_wait__do_so_no_longer_than_it_reads) {
  const Folder folder;
  server::Catalogue c({{.path = folder.path(), .kind = {}}});
  c.wait_for_scan();
  EXPECT_TRUE(c.has_scanned());
  EXPECT_TRUE(c.finish(std::chrono::seconds(20)));
  c.rescan();
  c.wait_for_scan();  // which nobody makes any more
}

}  // namespace ebb::testing
