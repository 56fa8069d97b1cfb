#include "base/background_tasks.h"

#include <algorithm>
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
  if (running_.size() >= most) taken(running_).get();
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
