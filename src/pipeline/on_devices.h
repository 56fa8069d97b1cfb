// Images of one request on several devices of this process: a thread for each device, which takes
// the next images whenever it is free. docs/many-gpus.md says why.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "runtime/context.h"

namespace ebb {

// Images [first, end) of a request.
struct ImageRange {
  int64_t first = 0, end = 0;
  bool empty() const { return first >= end; }
};

// Hands the images of a request out. Each device begins with a batch of its own, the first one with
// image 0; what is left goes to whichever asks.
class ImageQueue {
 public:
  ImageQueue(int64_t images, int64_t batch, size_t devices);
  // The next ones for a device, at most so many; empty: none are left.
  ImageRange next(size_t device, int64_t most);

 private:
  std::mutex mutex_;
  std::vector<ImageRange> left_;  // of each device, then of all
};

// The number of images at a time with which `devices` have equal work, of at most `most`.
int64_t divided_batch(int64_t images, int64_t most, size_t devices);
// Of so many devices, those that there is a batch for.
size_t used_devices(int64_t images, int64_t batch, size_t devices);

// Runs `work` for each of the devices, each on a thread of its own, or of a single one on this
// thread. Where one throws, the others' tokens ask for the end, and when all have ended this throws
// an Error that names the device; Cancelled stays as it is.
using DeviceWork = std::function<void(size_t device, const std::stop_token& stop)>;
void on_devices(std::span<const Context> devices, const DeviceWork& work);

}  // namespace ebb
