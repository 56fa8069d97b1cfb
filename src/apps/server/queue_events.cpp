// Queue: what its readers are told.
#include "apps/server/queue.h"

namespace ebb::server {

void Queue::publish_job(const std::string& name, const State& s) {
  Json data = {{"job", s.job->id}, {"item", job_json(s.view)}};
  if (name == "failed") data["error"] = data["item"]["error"];
  events_.add(name, data, s.job);
}

void Queue::tell(const std::string& name, const Json& data) {
  const std::lock_guard lock(mutex_);
  events_.add(name, data);
}

std::shared_ptr<const void> Queue::subscribe(EventLog::Subscriber call, std::vector<JobView>* now) {
  const std::lock_guard lock(mutex_);
  if (now) *now = views();
  return events_.subscribe(std::move(call));
}

size_t Queue::subscribers() const {
  const std::lock_guard lock(mutex_);
  return events_.subscribers();
}

int64_t Queue::last_event() const {
  const std::lock_guard lock(mutex_);
  return events_.last();
}

std::optional<Events> Queue::events_since(int64_t number) const {
  const std::lock_guard lock(mutex_);
  return events_.since(number);
}

void Queue::tell_order() {
  events_.add("state", Json());  // whoever sends it adds the snapshot
}

}  // namespace ebb::server
