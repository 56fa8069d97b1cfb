#include "apps/server/event_log.h"

#include <algorithm>
#include <exception>

#include "apps/server/log.h"

namespace ebb::server {

std::shared_ptr<const void> EventLog::subscribe(Subscriber call) {
  auto out = std::make_shared<const char>();
  std::erase_if(subscribers_, [](const auto& s) { return s.is_wanted.expired(); });
  subscribers_.push_back({out, std::move(call)});
  return out;
}

size_t EventLog::subscribers() const {
  return static_cast<size_t>(
      std::ranges::count_if(subscribers_, [](const auto& s) { return !s.is_wanted.expired(); }));
}

void EventLog::add(const std::string& name, const Json& data,
                   const std::shared_ptr<const Job>& job) {
  const auto event = std::make_shared<const Event>(Event{last_ + 1, name, json_text(data), job});
  events_.push_back(event);
  last_ = event->number, bytes_ += event->bytes();
  while (events_.size() > most_ || (bytes_ > most_bytes_ && !events_.empty())) {
    bytes_ -= events_.front()->bytes();
    events_.pop_front();
  }
  std::erase_if(subscribers_, [](const auto& s) { return s.is_wanted.expired(); });
  for (const Subscribed& s : subscribers_) {
    try {
      s.call(*event, data);
    } catch (const std::exception& e) {
      log_fault("an event was not told", e);
    }
  }
}

std::optional<Events> EventLog::since(int64_t number) const {
  const int64_t forgotten = last_ - std::ssize(events_);
  if (number > last_ || number < forgotten) return {};
  return Events(events_.begin() + (number - forgotten), events_.end());
}

}  // namespace ebb::server
