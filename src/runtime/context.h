// Context: the device, tuner and log of a call. No globals.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/device.h"
#include "runtime/device_memory.h"
#include "runtime/tuner.h"

namespace ebb {

struct Context {
  std::shared_ptr<Device> device;
  std::shared_ptr<Tuner> tuner = nullptr;  // null: presets, else the kernels' best guess
  std::function<void(std::string_view)> log = [](std::string_view) {};
  // Asked between the parts of long work: kernels that are chosen and measured, weights that are
  // read and prepared. May throw, which ends it.
  std::function<void()> poll = [] {};
  // Copies of a context share the count and the limit.
  std::shared_ptr<DeviceMemory> memory = std::make_shared<DeviceMemory>();

  // Of the device, counted. Throws OutOfMemory.
  std::shared_ptr<Buffer> allocate(int64_t bytes) const { return memory->allocate(*device, bytes); }
  int64_t free_memory() const { return memory->free(*device); }  // bytes
};

// "cpu", "cuda", or "auto": the first backend with a device here, "cpu" last; or "cuda:h200", a
// chip that is described and need not be here: graphs can be lowered for it, nothing runs. Throws
// Error that names what is missing, or the nearest name.
Context open_context(std::string_view backend, const DeviceOptions& options = {});
// How many devices of a backend are here; 0 also where this program has no such backend.
int64_t count_devices(std::string_view backend);

}  // namespace ebb
