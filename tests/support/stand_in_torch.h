// A stand-in for the functions of PyTorch that torch/shim.h names, and what tests ask of it.
#pragma once

#include <cstdint>
#include <vector>

#include "torch/shim.h"

extern "C" {
ebb::torch::BoxedKernel stand_in_kernel(const char* name);  // registered for "CPU"; null: none
// A tensor on the CPU (device type 0) or another device, with memory of its own.
ebb::torch::TensorHandle stand_in_tensor(const std::vector<int64_t>* sizes, int32_t dtype,
                                         int32_t device_type);
float* stand_in_data(ebb::torch::TensorHandle t);
void stand_in_move_data(ebb::torch::TensorHandle t, int64_t bytes);  // its address
void stand_in_set_strides(ebb::torch::TensorHandle t, const std::vector<int64_t>* strides);
ebb::torch::StringHandle stand_in_string(const char* text);
int64_t stand_in_alive();  // handles that nobody has deleted
// As many allocations and writes of zeros succeed, the next one fails, and all after it succeed.
void stand_in_fail_after(int64_t successes);
}
