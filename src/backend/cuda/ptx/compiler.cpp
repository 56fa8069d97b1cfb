#include "backend/cuda/ptx/compiler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cuda/device/error.h"
#include "backend/cuda/device/thread_state.h"
#include "base/error.h"

namespace ebb::cuda {

Compiler::~Compiler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
  for (const cudaLibrary_t library : libraries_) cudaLibraryUnload(library);
}

Generated Compiler::kernel(const std::string& ptx, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto it = kernels_.find(ptx); it != kernels_.end()) return it->second;
  std::packaged_task<const void*()> task([this, ptx, name] { return compile(ptx, name); });
  const Generated result = kernels_.emplace(ptx, task.get_future().share()).first->second;
  waiting_.push_back(std::move(task));
  constexpr size_t most = 16;
  const size_t wanted = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, most);
  if (std::cmp_less(idle_, waiting_.size()) && threads_.size() < wanted)
    threads_.emplace_back([this] { work(); });
  changed_.notify_one();
  return result;
}

void Compiler::work() {
  cudaSetDevice(device_);
  const RelaxedCapture relaxed;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (waiting_.empty()) {
      ++idle_;
      changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      --idle_;
      continue;
    }
    std::packaged_task<const void*()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

const void* Compiler::compile(const std::string& ptx, const std::string& name) {
  std::array<char, 4096> log = {};
  cudaJitOption options[] = {cudaJitErrorLogBuffer, cudaJitErrorLogBufferSizeBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  cudaLibrary_t library = nullptr;
  const cudaError_t status =
      cudaLibraryLoadData(&library, ptx.c_str(), options, values, 2, nullptr, nullptr, 0);
  require(status == cudaSuccess, "cuda: generated code does not compile (",
          cudaGetErrorName(status), ": ", log.data(), ")  ", name);
  {
    const std::lock_guard lock(mutex_);
    libraries_.push_back(library);
  }
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, name.c_str()), name);
  cudaFuncAttributes attributes = {};  // asked for, so that the kernel is on the device by then
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  return kernel;
}

}  // namespace ebb::cuda
