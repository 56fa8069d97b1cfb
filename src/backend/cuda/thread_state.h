// What the CUDA runtime keeps for the calling thread, changed for the life of a scope.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/error.h"

namespace ebb::cuda {

// The device that calls without one go to.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    check(cudaGetDevice(&before_), "asking for the device");
    if (before_ != index) check(cudaSetDevice(index), "choosing the device");
    changed_ = before_ != index;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Lets the thread load code and take memory while any thread captures a stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace ebb::cuda
