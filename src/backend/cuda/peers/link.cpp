#include "backend/cuda/peers/link.h"

#include <cuda.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <utility>
#include <vector>

#include "backend/cuda/device/driver_function.h"
#include "backend/cuda/device/error.h"
#include "backend/cuda/peers/kernels.h"
#include "backend/cuda/peers/memory.h"

namespace ebb::cuda::peers {
namespace {

// Of a rank's slots together: what a bucket of gradients needs at once. Its packing buffers take as
// much again.
constexpr int64_t staging_bytes = int64_t{32} << 20;
constexpr int64_t word = sizeof(uint32_t);

// Functions of the driver that the runtime has not.
struct MemoryOperations {
  CUresult (*batch)(CUstream, unsigned, CUstreamBatchMemOpParams*,
                    unsigned) = driver_function<decltype(batch)>("cuStreamBatchMemOp");
  unsigned wait_flags = CU_STREAM_WAIT_VALUE_EQ;

  // Copies of other ranks arrive before the flag behind them, but the GPU may show them later,
  // unless it flushes them (CU_STREAM_WAIT_VALUE_FLUSH).
  MemoryOperations() {
    const auto attribute =
        driver_function<CUresult (*)(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
    int device = 0, can = 0;
    check(cudaGetDevice(&device), "asking for the device");
    if (attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, device) == CUDA_SUCCESS && can)
      wait_flags |= CU_STREAM_WAIT_VALUE_FLUSH;
  }
};

class PeerLink final : public Link {
 public:
  PeerLink(RankGroup& group, CudaDevice& device)
      : device_(device),
        rank_(group.rank()),
        ranks_(group.ranks()),
        slot_bytes_(staging_bytes / ranks_ / alignment * alignment),
        own_(ranks_ * slot_bytes_ + flags * ranks_ * word),
        packing_(ranks_ * slot_bytes_) {}
  ~PeerLink() override {
    if (!linked_) return;
    if (std::uncaught_exceptions() > 0) {
      release();
      return;
    }
    try {  // others may still read what is here
      sync({.wait = Flag::free});
      cudaStreamSynchronize(device_.stream());
    } catch (const std::exception&) {
      // the process ends, and CUDA with it
    }
  }
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  std::string handle() const { return own_.handle(); }
  // `handles`: of all ranks. Tells them that the slots are free, and finds out by it whether the
  // driver raises flags in their memory. Throws Error.
  void map(const std::vector<std::string>& handles) {
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r != rank_) mapped_.emplace_back(handles[static_cast<size_t>(r)]);
      memory_.push_back(r == rank_ ? own_.data() : mapped_.back().data());
    }
    sync({.raise = Flag::free});
    device_.synchronize();
  }

  // Every rank has mapped all memory: from here on others wait for this one.
  void begin() { linked_ = true; }

  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }
  int64_t slot_bytes() const override { return slot_bytes_; }
  std::string description() const override { return "copies between GPUs"; }
  std::byte* slot(int64_t owner, int64_t writer) const override {
    return memory_[static_cast<size_t>(owner)] + writer * slot_bytes_;
  }
  std::byte* packing(int64_t rank) const override { return packing_.data() + rank * slot_bytes_; }
  void copy(const Move& m) override {
    check(cudaMemcpyAsync(m.to, m.from, static_cast<size_t>(m.bytes), cudaMemcpyDeviceToDevice,
                          device_.stream()),
          "copying between GPUs");
  }
  void move(std::span<const Move> moves) override { enqueue_moves(moves, device_); }
  void sum(std::span<const Sum> sums) override {
    enqueue_sums(sums,
                 {own_.data(), slot_bytes_, static_cast<int>(rank_), static_cast<int>(ranks_)},
                 device_);
  }
  void sync(const Sync& s) override {
    std::vector<CUstreamBatchMemOpParams> operations, waits, clears;
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      if (s.raise) operations.push_back(write(flag(*s.raise, r, rank_), 1));
      if (!s.wait) continue;
      waits.push_back(wait_for(flag(*s.wait, rank_, r), memory_operations_.wait_flags));
      clears.push_back(write(flag(*s.wait, rank_, r), 0));
    }
    operations.insert(operations.end(), waits.begin(), waits.end());
    operations.insert(operations.end(), clears.begin(), clears.end());
    if (operations.empty()) return;
    const CUresult result = memory_operations_.batch(
        device_.stream(), static_cast<unsigned>(operations.size()), operations.data(), 0);
    require(result == CUDA_SUCCESS, "cuda: waiting for other ranks failed on GPU ", device_.index(),
            " (CUDA's error ", static_cast<int>(result),
            "); EBB_COLLECTIVES=nccl exchanges another way");
  }

 private:
  // Flags lie behind the slots, by kind and by the rank that raises them.
  std::byte* first_flag(int64_t owner) const { return slot(owner, ranks_); }
  std::byte* flag(Flag f, int64_t owner, int64_t writer) const {
    return first_flag(owner) + (static_cast<int64_t>(f) * ranks_ + writer) * word;
  }
  static CUstreamBatchMemOpParams write(std::byte* to, uint32_t value) {
    CUstreamBatchMemOpParams out{};
    out.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    out.writeValue.address = reinterpret_cast<CUdeviceptr>(to);
    out.writeValue.value = value;
    return out;
  }
  static CUstreamBatchMemOpParams wait_for(std::byte* at, unsigned wait_flags) {
    CUstreamBatchMemOpParams out{};
    out.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    out.waitValue.address = reinterpret_cast<CUdeviceptr>(at);
    out.waitValue.value = 1;
    out.waitValue.flags = wait_flags;
    return out;
  }

  // Lets what waits for other ranks go on, whatever lies in the slots: an Error is on its way, and
  // streams that wait for ever would keep the process from ending.
  void release() const {
    cudaStream_t other = nullptr;
    const std::vector<uint32_t> signals(static_cast<size_t>(flags * ranks_), 1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    if (cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess) return;
    while (cudaStreamQuery(device_.stream()) == cudaErrorNotReady &&
           std::chrono::steady_clock::now() < end) {
      cudaMemcpyAsync(first_flag(rank_), signals.data(), signals.size() * word,
                      cudaMemcpyHostToDevice, other);
      cudaStreamSynchronize(other);
    }
    cudaStreamDestroy(other);
  }

  CudaDevice& device_;
  MemoryOperations memory_operations_;
  int64_t rank_, ranks_, slot_bytes_;
  SharedMemory own_, packing_;
  std::vector<MappedMemory> mapped_;
  std::vector<std::byte*> memory_;  // by rank
  bool linked_ = false;
};

// One host, whatever its name is in a container. "": not known.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Whether the GPU at `bus_id` is visible here and its memory in reach.
bool reaches(int index, const std::string& bus_id) {
  int other = 0, can = 0;
  const bool is = cudaDeviceGetByPCIBusId(&other, bus_id.c_str()) == cudaSuccess &&
                  other != index && cudaDeviceCanAccessPeer(&can, index, other) == cudaSuccess;
  cudaGetLastError();  // the runtime keeps it for the next call
  return is && can == 1;
}

// What hinders this rank from reaching the others, which said `places`: host and bus.
std::string hindrance(const RankGroup& group, const std::vector<std::string>& places,
                      const CudaDevice& device, const std::string& bus_id) {
  const auto host = [](const std::string& place) { return place.substr(0, place.find('\n')); };
  const std::string& own = places[static_cast<size_t>(group.rank())];
  if (host(own).empty()) return "the host has no id in /proc";
  for (int64_t r = 0; r < group.ranks(); ++r) {
    const std::string& place = places[static_cast<size_t>(r)];
    if (host(place) != host(own)) return "they are on several hosts";
    const std::string bus = place.substr(place.find('\n') + 1);
    if (r != group.rank() && !reaches(device.index(), bus))
      return str("GPU ", bus_id, " does not reach the memory of GPU ", bus);
  }
  return "";
}

// The first rank's words that are not empty.
std::string first_of(RankGroup& group, const std::string& own) {
  for (const std::string& text : group.gather(own))
    if (!text.empty()) return text;
  return "";
}

// Calls `work`; what it throws, as text.
std::string attempt(const auto& work) {
  try {
    work();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

LinkOrObstacle link(RankGroup& group, CudaDevice& device, const std::string& bus_id) {
  const auto places = group.gather(str(host_id(), "\n", bus_id));
  std::string obstacle = first_of(group, hindrance(group, places, device, bus_id));
  if (!obstacle.empty()) return {nullptr, obstacle};
  std::unique_ptr<PeerLink> out;
  std::string handle;
  obstacle = first_of(group, attempt([&] {
                        out = std::make_unique<PeerLink>(group, device);
                        handle = out->handle();
                      }));
  if (!obstacle.empty()) return {nullptr, obstacle};
  const auto handles = group.gather(handle);
  obstacle = first_of(group, attempt([&] { out->map(handles); }));
  if (!obstacle.empty()) return {nullptr, obstacle};
  out->begin();
  return {std::move(out), ""};
}

}  // namespace ebb::cuda::peers
