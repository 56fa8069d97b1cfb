// Torch's devices and dtypes as ebb's, and the library of functions of each device.
#pragma once

#include <optional>
#include <string>

#include "functions/library.h"
#include "torch/shim.h"

namespace ebb::torch {

struct TorchDevice {
  int32_t type = 0, index = 0;
  static TorchDevice of(TensorHandle t);
  bool operator==(const TorchDevice&) const = default;
  std::string text() const;  // "cpu", "cuda:1"
  void* stream() const;      // torch's current one; null on the CPU
  // Whether what is enqueued on this stream of the device is, or may be, recorded in a graph.
  bool records(void* stream) const;
};

std::optional<DType> dtype_of_code(int32_t code);
int32_t code_of(DType t);

// Made when it is first asked for. Throws Error: no such device, or too old a driver.
functions::Library& library_of(const TorchDevice& device);

}  // namespace ebb::torch
