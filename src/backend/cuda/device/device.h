// One NVIDIA GPU as a device: its stream, its limits, and the code generated for it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/device/chip.h"
#include "core/device.h"

namespace ebb::cuda {

class Compiler;
class Staging;

// What a kernel tells the host when an input is wrong; zero: nothing is. Written by device code,
// read when the device is waited for.
struct Fault {
  int code = 0;  // a FaultCode
  long long value = 0, limit = 0;
};
enum FaultCode : int { no_fault = 0, id_out_of_range = 1 };

class OnStream;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);  // among those here
  // A chip that is not here: graphs are lowered for it, and nothing can run.
  explicit CudaDevice(Chip chip);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string_view backend() const override { return "cuda"; }
  std::string description() const override;
  bool on_host() const override { return false; }
  bool fast_in(DType dtype) const override;
  Peaks peaks() const override { return peaks_of(chip_); }
  double flops_per_pass() const override { return 60; }
  bool hoists_row_scalars() const override { return true; }
  int64_t free_memory() const override;
  DriverMemory driver_memory() const override;
  int64_t rounded(int64_t bytes) const override;
  std::shared_ptr<Buffer> allocate(int64_t bytes) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void fetch(std::span<const Copied> results) override;
  void fill(const Tensor& to, const ReadBytes& read) override;
  void synchronize() override;
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override;
  std::unique_ptr<Event> record_event() override;
  bool has_side_stream() const override { return true; }
  std::unique_ptr<Event> on_side_stream(SideStream which,
                                        const std::function<void()>& work) override;
  void wait(const Event& event) override;
  void run_current(const std::function<void()>& work) override;
  void run_on(void* stream, const std::function<void()>& work) override;
  void run_beside(const std::function<void()>& work) override;
  void run_loading(const std::function<void()>& work) override;
  // The device becomes that of the calling thread, which trains on it.
  void join(RankGroup& group) override;

  // Where kernels go: the stream of the calling thread's OnStream, else the device's own.
  cudaStream_t stream() const;
  // For each kernel that is enqueued, once: whether it may start while the one before it still
  // runs. The first behind a wait for another stream may not, nor the first of an OnStream.
  bool take_early_start();
  // The next one may not.
  void finish_before_next();
  int index() const { return index_; }
  const Chip& chip() const { return chip_; }
  int capability() const { return chip_.capability; }
  int sm_count() const { return chip_.sm_count; }
  int64_t shared_per_block() const { return chip_.shared_per_block; }
  Fault* fault() const { return fault_; }  // an address for the device and the host

  Compiler& compiler() { return *compiler_; }  // of generated code

 private:
  OnStream* on_stream() const;  // the calling thread's
  cudaStream_t& side_stream(SideStream s) { return side_streams_[static_cast<size_t>(s)]; }
  void require_here() const;  // throws Error for a chip that is only described

  Chip chip_;
  int64_t context_bytes_ = 0, free_at_first_ = 0;
  std::shared_ptr<std::atomic<int64_t>> allocated_ = std::make_shared<std::atomic<int64_t>>(0);
  int index_ = -1;  // among the devices here; -1: it is only described
  cudaStream_t stream_ = nullptr, copy_stream_ = nullptr;
  std::array<cudaStream_t, side_streams> side_streams_ = {};
  bool waited_ = false;
  Fault* fault_ = nullptr;
  Staging& staging();  // made when it is first asked for, by whichever thread
  struct LazyStaging;
  std::unique_ptr<LazyStaging> staging_;
  std::unique_ptr<Compiler> compiler_;
};

// What the calling thread enqueues goes to a stream of the caller's while this lives.
class OnStream {
 public:
  OnStream(const CudaDevice& device, cudaStream_t stream);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  friend class CudaDevice;
  const CudaDevice& device_;
  cudaStream_t stream_;
  bool started_ = false;  // a kernel went to it
  OnStream* outer_;       // of the same thread
};

// The CudaDevice behind what a kernel's prepare gets.
inline CudaDevice& of(Device& d) { return static_cast<CudaDevice&>(d); }
inline const CudaDevice& of(const Device& d) { return static_cast<const CudaDevice&>(d); }

}  // namespace ebb::cuda
