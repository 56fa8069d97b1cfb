// EventLog: what has happened to jobs, by number, and whom it is told. Whoever has one locks it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/server/job.h"

namespace ebb::server {

struct Event {
  int64_t number = 0;
  std::string name;
  std::string text;                   // of its data, as JSON
  std::weak_ptr<const Job> job = {};  // that it is of
  size_t bytes() const { return sizeof(Event) + name.size() + text.size(); }
};
using Events = std::vector<std::shared_ptr<const Event>>;

class EventLog {
 public:
  // Keeps the newest ones: so many, and of so many bytes together. They are numbered behind `last`.
  EventLog(size_t most, size_t most_bytes, int64_t last = 0)
      : most_(most), most_bytes_(most_bytes), last_(last) {}

  using Subscriber = std::function<void(const Event&, const Json& data)>;
  // Called of each event until nobody holds what is returned. What one throws stays here: the
  // others are told all the same.
  [[nodiscard]] std::shared_ptr<const void> subscribe(Subscriber call);
  size_t subscribers() const;
  void add(const std::string& name, const Json& data, const std::shared_ptr<const Job>& job = {});
  int64_t last() const { return last_; }
  // Those behind `number`; none where one of them is forgotten, or is still to come.
  std::optional<Events> since(int64_t number) const;
  size_t bytes() const { return bytes_; }

 private:
  struct Subscribed {
    std::weak_ptr<const void> is_wanted;
    Subscriber call;
  };
  size_t most_, most_bytes_, bytes_ = 0;
  int64_t last_;
  std::deque<std::shared_ptr<const Event>> events_;
  std::vector<Subscribed> subscribers_;
};

}  // namespace ebb::server
