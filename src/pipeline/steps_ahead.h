// StepsAhead: how far the host may be ahead of the device in a loop of steps.
#pragma once

#include <memory>
#include <utility>

#include "core/device.h"

namespace ebb {

// Enqueueing a step takes microseconds, the step itself up to seconds. The host waits until one
// step at most is behind it: what is told as done is done, a stop is answered within two steps, and
// the device never waits for the host.
class StepsAhead {
 public:
  explicit StepsAhead(Device& device) : device_(device) {}

  // A step was enqueued. Waits for the one before it.
  void step() {
    std::unique_ptr<Event> now = device_.record_event();
    if (before_) before_->seconds_since(*before_);
    before_ = std::move(now);
  }

 private:
  Device& device_;
  std::unique_ptr<Event> before_;
};

}  // namespace ebb
