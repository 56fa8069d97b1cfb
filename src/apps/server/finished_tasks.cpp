#include "apps/server/finished_tasks.h"

#include <algorithm>

namespace ebb::server {

void FinishedTasks::add(const std::string& id, double now) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({id, now});
  while (tasks_.size() > most || now - tasks_.front().time > known_seconds) tasks_.pop_front();
}

bool FinishedTasks::knows(std::string_view id, double now) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      tasks_, [&](const Task& t) { return t.id == id && now - t.time <= known_seconds; });
}

}  // namespace ebb::server
