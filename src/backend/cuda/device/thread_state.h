// What the CUDA runtime keeps for the calling thread, changed for the life of a scope.
#pragma once

#include <cuda_runtime.h>

namespace ebb::cuda {

// The device that calls without one go to, by its context on top of the thread's. cudaSetDevice()
// would make a context on the device that it goes back to, hundreds of MB of one that the process
// may not have used.
class OnDevice {
 public:
  explicit OnDevice(int index);  // throws Error
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;  // it was another one
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
