// Context: what travels with every call: the device, the tuner, the log. No globals.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/device.h"
#include "runtime/tuner.h"

namespace ebb {

struct Context {
  std::shared_ptr<Device> device;
  std::shared_ptr<Tuner> tuner = nullptr;  // null: presets, else what kernels guess best
  std::function<void(std::string_view)> log = [](std::string_view) {};
};

// "cpu", "cuda", or "auto": the first that has a device here, "cpu" last. Throws Error naming what
// is missing, or the nearest name.
Context open_context(std::string_view backend, const DeviceOptions& options = {});

}  // namespace ebb
