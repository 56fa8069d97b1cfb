#include "apps/server/finished_tasks.h"

namespace ebb::server {

void FinishedTasks::add(const std::string& id, double now) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back({id, now});
  ids_.insert(id);
  while (tasks_.size() > most || now - tasks_.front().time > known_seconds) {
    ids_.erase(ids_.find(tasks_.front().id));
    tasks_.pop_front();
  }
}

bool FinishedTasks::knows(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  return ids_.contains(id);
}

}  // namespace ebb::server
