// Tasks: a few threads that run what they are given, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "apps/server/log.h"

namespace ebb::server {

class Tasks {
 public:
  explicit Tasks(size_t threads) {
    for (size_t i = 0; i < threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
  ~Tasks() { finish(); }
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

  // What it throws is told in the log. Behind finish() nothing is run any more.
  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }
  // Waits for all that was given.
  void finish() {
    for (auto& t : threads_) t.request_stop();
    threads_.clear();
  }

 private:
  void work(const std::stop_token& stop) {
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [&] { return !tasks_.empty(); });
      if (tasks_.empty()) return;  // it is to stop
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      try {
        task();
      } catch (const std::exception& e) {
        log_fault("a task failed", e);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::jthread> threads_;
};

}  // namespace ebb::server
