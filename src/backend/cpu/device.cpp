// The CPU as a device: host memory, OpenMP threads.
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "backend/cpu/mpi_communicator.h"
#include "backend/cpu/onednn.h"
#include "base/error.h"
#include "core/device.h"
#include "core/host_memory.h"

namespace ebb::backend::cpu {
namespace {

std::string chip_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

int64_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int64_t threads) : threads_(threads) {
    omp_set_num_threads(static_cast<int>(threads));
  }
  std::string_view backend() const override { return "cpu"; }
  std::string description() const override {
    return str(chip_name(), ", ", threads_, threads_ == 1 ? " thread" : " threads",
               fast_in(DType::bf16) ? ", bf16" : "");
  }
  bool fast_in(DType dtype) const override { return ebb::cpu::onednn_fast_in(dtype); }
  int64_t free_memory() const override { return free_host_memory(); }
  std::shared_ptr<Buffer> allocate(int64_t bytes) override { return host_buffer(bytes); }
  void copy(const Tensor& from, const Tensor& to) override {
    require(from.type() == to.type(), "copy: types differ (", from.type(), ", ", to.type(), ")");
    if (from.bytes() > 0) std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
  void synchronize() override {}
  void run_current(const std::function<void()>& work) override {
    omp_set_num_threads(static_cast<int>(threads_));  // which each thread has its own number of
    work();
  }
  void join(RankGroup& group) override { communicator_ = ebb::cpu::mpi_communicator(group); }

 private:
  int64_t threads_;
};

}  // namespace

std::shared_ptr<Device> open(const DeviceOptions& options) {
  // far more threads than cores wait for each other for minutes
  const int64_t most = std::max<int64_t>(4 * usable_cores(), 8);
  require(options.threads >= 0 && options.threads <= most, "device: threads must be 0 to ", most,
          " on ", usable_cores(), " cores (got ", options.threads, ")");
  return std::make_shared<CpuDevice>(options.threads ? options.threads : usable_cores());
}

int64_t count() { return 1; }

}  // namespace ebb::backend::cpu
