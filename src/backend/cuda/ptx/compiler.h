// Compiler: has the driver compile generated PTX, several texts side by side.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

namespace ebb::cuda {

// A kernel that may still be being compiled; get() waits, and throws Error if it does not compile.
using Generated = std::shared_future<const void*>;

class Compiler {
 public:
  explicit Compiler(int device) : device_(device) {}
  ~Compiler();  // finishes what runs and unloads everything
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // The kernel `name` of a text, from a thread of the compiler; each text is compiled once.
  Generated kernel(const std::string& ptx, const std::string& name);

 private:
  void work();  // of a thread
  const void* compile(const std::string& ptx, const std::string& name);

  int device_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<std::string, Generated, std::less<>> kernels_;  // by text; each has one kernel
  std::deque<std::packaged_task<const void*()>> waiting_;
  std::vector<std::thread> threads_;
  std::vector<cudaLibrary_t> libraries_;
  int idle_ = 0;
  bool stop_ = false;
};

}  // namespace ebb::cuda
