// StepsAhead: how far the host may be ahead of the device in a loop of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/device.h"

namespace ebb {

// Enqueueing a step takes microseconds, the step itself up to seconds. The host waits until one
// step at most is behind it and tells of those that are done: who stops then does so within a step,
// and the device never waits for the host.
class StepsAhead {
 public:
  explicit StepsAhead(Device& device) : device_(device) {}

  // Step `number`, 1 and on, was enqueued. Waits for the one before it, and returns the number of
  // the last one that is done: on the host this one.
  int64_t step(int64_t number) {
    if (device_.on_host()) return number;
    std::unique_ptr<Event> now = device_.record_event();
    if (before_) wait_for(*before_);
    before_ = std::move(now);
    return std::exchange(number_, number);
  }

 private:
  // An event's time is known when the device has come to it.
  static void wait_for(const Event& event) { event.seconds_since(event); }

  Device& device_;
  std::unique_ptr<Event> before_;
  int64_t number_ = 0;
};

}  // namespace ebb
