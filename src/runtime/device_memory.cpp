#include "runtime/device_memory.h"

#include <algorithm>

#include "core/out_of_memory.h"

namespace ebb {

std::shared_ptr<Buffer> DeviceMemory::allocate(Device& device, int64_t bytes) {
  constexpr double megabyte = 1e6;
  if (limit_ > 0 && used_ + bytes > limit_)
    throw OutOfMemory(str("memory: the limit of ", static_cast<double>(limit_) / megabyte,
                          " MB is reached (", static_cast<double>(bytes) / megabyte,
                          " MB needed at once, ", static_cast<double>(used_) / megabyte,
                          " MB taken)"));
  std::shared_ptr<Buffer> held = device.allocate(bytes);
  const int64_t now = used_ += bytes;
  int64_t most = peak_;
  while (now > most && !peak_.compare_exchange_weak(most, now)) {
  }
  Buffer* const buffer = held.get();
  return {buffer, [held = std::move(held), counter = shared_from_this(), bytes](Buffer*) mutable {
            held.reset();
            counter->used_ -= bytes;
          }};
}

int64_t DeviceMemory::free(const Device& device) const {
  const int64_t there = device.free_memory();
  return limit_ > 0 ? std::clamp<int64_t>(limit_ - used_, 0, there) : there;
}

}  // namespace ebb
