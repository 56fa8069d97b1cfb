// TimedTasks: a thread that runs what it is given, in order, where that may hang, as files of a
// mount may. Whoever waits too long is told so, and the rest of the server goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace ebb::server {

class TimedTasks {
 public:
  explicit TimedTasks(std::chrono::milliseconds time);
  ~TimedTasks();  // waits for the task that runs, however long
  TimedTasks(const TimedTasks&) = delete;
  TimedTasks& operator=(const TimedTasks&) = delete;

  // `late` is called once, on another thread, where the task is not done in time: at once where the
  // one that runs is late already. A task that has not begun by then is not run. What they throw is
  // told in the log.
  void add(std::function<void()> task, std::function<void()> late);
  // No more are run. False: the one that runs is not done in this time.
  bool finish(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    std::function<void()> run, late;
    Clock::time_point end;
    bool runs = false, is_late = false;
  };
  void work(const std::stop_token& stop);
  void watch(const std::stop_token& stop);
  std::shared_ptr<Task> next_to_end() const;

  const std::chrono::milliseconds time_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::shared_ptr<Task>> tasks_;  // the first one runs
  std::jthread worker_, watcher_;
};

}  // namespace ebb::server
