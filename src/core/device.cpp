#include "core/device.h"

#include <chrono>

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

// Of a device that has finished its work when a call returns.
class HostMark final : public Mark {
 public:
  double seconds_since(const Mark& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const HostMark&>(earlier).at_).count();
  }

 private:
  Clock::time_point at_ = Clock::now();
};

}  // namespace

std::unique_ptr<Mark> Device::mark() { return std::make_unique<HostMark>(); }

}  // namespace ebb
