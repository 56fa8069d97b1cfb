// FinishedTasks: ids of jobs that are finished, longer than the queue knows the jobs themselves,
// for clients who ask whether theirs is over. Any thread may call.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <string_view>

namespace ebb::server {

class FinishedTasks {
 public:
  static constexpr size_t most = 10'000;         // ids, of at most 128 bytes
  static constexpr double known_seconds = 3600;  // since the queue forgot it

  void add(const std::string& id, double now);
  bool knows(std::string_view id, double now) const;

 private:
  struct Task {
    std::string id;
    double time;
  };
  mutable std::mutex mutex_;
  std::deque<Task> tasks_;  // the oldest first
};

}  // namespace ebb::server
