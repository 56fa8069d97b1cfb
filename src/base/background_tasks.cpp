#include "base/background_tasks.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

namespace ebb {
namespace {

std::future<void> taken(std::deque<std::future<void>>& from) {
  std::future<void> oldest = std::move(from.front());
  from.pop_front();
  return oldest;
}

}  // namespace

void BackgroundTasks::add(std::function<void()> task) {
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  const auto is_done = [](const std::future<void>& task) {
    return task.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  while (!running_.empty() && (running_.size() >= most || is_done(running_.front())))
    taken(running_).get();
  running_.push_back(std::async(std::launch::async, std::move(task)));
}

void BackgroundTasks::finish() {
  std::exception_ptr first;
  while (!running_.empty()) try {
      taken(running_).get();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  if (first) std::rethrow_exception(first);
}

}  // namespace ebb
