// DeviceMemory: what a context has taken of a device's memory: how much, how much at most, and a
// limit to it. Counted are buffers as they are asked for; a driver's own memory and the rounding of
// its allocator are not.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/device.h"

namespace ebb {

class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  // Throws OutOfMemory where the limit or the device leaves no room. What it gives counts until the
  // last owner lets go of it.
  std::shared_ptr<Buffer> allocate(Device& device, int64_t bytes);
  // Bytes that can be allocated: of the device's free ones, what the limit leaves.
  int64_t free(const Device& device) const;

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }  // since the start, or since restart_peak()
  void restart_peak() { peak_ = used_.load(); }
  int64_t limit() const { return limit_; }  // bytes; 0: none
  void set_limit(int64_t bytes) { limit_ = bytes; }

 private:
  std::atomic<int64_t> used_ = 0, peak_ = 0, limit_ = 0;
};

}  // namespace ebb
