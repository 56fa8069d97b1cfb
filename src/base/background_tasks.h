// BackgroundTasks: work beside the caller's, as compressing pictures while the next ones are made.
#pragma once

#include <deque>
#include <functional>
#include <future>

namespace ebb {

class BackgroundTasks {
 public:
  BackgroundTasks() = default;
  ~BackgroundTasks() = default;  // waits; errors that nobody asked for are lost
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;

  // Starts a task; where each processor has one, waits for the oldest. Throws what the oldest ones
  // that are done threw.
  void add(std::function<void()> task);
  // Waits for all. Throws what the first that failed threw.
  void finish();

 private:
  std::deque<std::future<void>> running_;  // oldest first; their destructors wait
};

}  // namespace ebb
