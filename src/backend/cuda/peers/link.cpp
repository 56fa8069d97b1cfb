#include "backend/cuda/peers/link.h"

#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <fstream>
#include <vector>

#include "backend/cuda/driver_function.h"
#include "backend/cuda/error.h"
#include "backend/cuda/peers/kernels.h"
#include "base/text.h"

namespace ebb::cuda::peers {
namespace {

// Of the slots of a rank, and of its desks: what a bucket of gradients needs at once.
constexpr int64_t staging_bytes = int64_t{32} << 20;

// One host, whatever its name is in a container.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Memory that other processes on this host reach.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes) {
    check(cudaMalloc(&data_, static_cast<size_t>(bytes)), "allocating staging memory");
    check(cudaMemset(data_, 0, static_cast<size_t>(bytes)), "clearing staging memory");
    check(cudaDeviceSynchronize(), "clearing staging memory");
  }
  ~SharedMemory() { cudaFree(data_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::string handle() const {
    cudaIpcMemHandle_t handle;
    check(cudaIpcGetMemHandle(&handle, data_), "sharing staging memory");
    return {handle.reserved, sizeof handle.reserved};
  }

 private:
  void* data_ = nullptr;
};

// Another process' SharedMemory, as this one addresses it.
class MappedMemory {
 public:
  explicit MappedMemory(const std::string& handle) {
    cudaIpcMemHandle_t h;
    require(handle.size() == sizeof h.reserved, "cuda: not a handle of memory (", handle.size(),
            " bytes)");
    std::memcpy(h.reserved, handle.data(), sizeof h.reserved);
    check(cudaIpcOpenMemHandle(&data_, h, cudaIpcMemLazyEnablePeerAccess),
          "opening another rank's memory");
  }
  ~MappedMemory() {
    if (data_) cudaIpcCloseMemHandle(data_);
  }
  MappedMemory(MappedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  MappedMemory& operator=(MappedMemory&&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class PeerLink final : public Link {
 public:
  PeerLink(RankGroup& group, StreamOf stream)
      : stream_(std::move(stream)),
        rank_(group.rank()),
        ranks_(group.ranks()),
        slot_bytes_(staging_bytes / ranks_ / alignment * alignment),
        own_(ranks_ * slot_bytes_ + flag_bytes()),
        desks_(ranks_ * slot_bytes_) {
    const std::vector<std::string> handles = group.gather(own_.handle());
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r != rank_) mapped_.emplace_back(handles[static_cast<size_t>(r)]);
      memory_.push_back(r == rank_ ? own_.data() : mapped_.back().data());
    }
    const uint32_t one = 1;
    check(cudaMemcpy(raised(), &one, sizeof one, cudaMemcpyHostToDevice), "preparing flags");
  }
  // Others may still read what is here.
  ~PeerLink() override {
    if (std::uncaught_exceptions() > 0) return;
    try {
      barrier();
      barrier();
      cudaStreamSynchronize(stream_());
    } catch (const Error&) {
      // the process ends, and CUDA with it
    }
  }
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }
  int64_t slot_bytes() const override { return slot_bytes_; }
  std::string description() const override { return "copies between GPUs"; }
  std::byte* slot(int64_t owner, int64_t writer) const override {
    return memory_[static_cast<size_t>(owner)] + writer * slot_bytes_;
  }
  std::byte* desk(int64_t rank) const override { return desks_.data() + rank * slot_bytes_; }
  void copy(const Move& m) override {
    check(cudaMemcpyAsync(m.to, m.from, static_cast<size_t>(m.bytes), cudaMemcpyDeviceToDevice,
                          stream_()),
          "copying between GPUs");
  }
  void move(std::span<const Move> moves) override { enqueue_moves(moves, stream_()); }
  void sum(std::span<const Sum> sums) override {
    enqueue_sums(sums,
                 {own_.data(), slot_bytes_, static_cast<int>(rank_), static_cast<int>(ranks_)},
                 stream_());
  }

  // Raises this rank's flag at every other one, and waits for theirs here, which it lowers again.
  // A rank that is ahead raises the flag of the other kind next, and waits behind it.
  void barrier() override {
    const cudaStream_t s = stream_();
    for (int64_t r = 0; r < ranks_; ++r)
      if (r != rank_) copy({flag(r, rank_), raised(), sizeof(uint32_t)});
    std::vector<CUstreamBatchMemOpParams> waits, lowers;
    for (int64_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      const auto here = reinterpret_cast<CUdeviceptr>(flag(rank_, r));
      CUstreamBatchMemOpParams wait{}, lower{};
      wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      wait.waitValue.address = here;
      wait.waitValue.value = 1;
      wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
      lower.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      lower.writeValue.address = here;
      waits.push_back(wait);
      lowers.push_back(lower);
    }
    waits.insert(waits.end(), lowers.begin(), lowers.end());
    static const auto batch =
        driver_function<CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned)>(
            "cuStreamBatchMemOp");
    require(batch(s, static_cast<unsigned>(waits.size()), waits.data(), 0) == CUDA_SUCCESS,
            "cuda: waiting for other ranks failed");
    second_ = !second_;
  }

 private:
  // Flags behind the slots: two kinds, by rank, and the word that raises them.
  int64_t flag_bytes() const { return (2 * ranks_ + 1) * int64_t{sizeof(uint32_t)}; }
  std::byte* flags(int64_t owner) const { return slot(owner, ranks_); }
  std::byte* flag(int64_t owner, int64_t writer) const {
    return flags(owner) + ((second_ ? ranks_ : 0) + writer) * int64_t{sizeof(uint32_t)};
  }
  std::byte* raised() const { return flags(rank_) + 2 * ranks_ * int64_t{sizeof(uint32_t)}; }

  StreamOf stream_;
  int64_t rank_, ranks_, slot_bytes_;
  SharedMemory own_, desks_;
  std::vector<MappedMemory> mapped_;
  std::vector<std::byte*> memory_;  // by rank
  bool second_ = false;             // the kind of flag of the next barrier
};

// Whether the GPU at `bus_id` is visible here and its memory in reach.
bool reaches(int index, const std::string& bus_id) {
  int other = 0, can = 0;
  if (cudaDeviceGetByPCIBusId(&other, bus_id.c_str()) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return other != index && cudaDeviceCanAccessPeer(&can, index, other) == cudaSuccess && can == 1;
}

}  // namespace

std::string obstacle(RankGroup& group, int index, std::string_view bus_id) {
  const std::string host = host_id();
  const std::vector<std::string> all = group.gather(str(host, "\n", bus_id));
  std::string own;
  for (int64_t r = 0; r < group.ranks() && own.empty(); ++r) {
    const std::string& text = all[static_cast<size_t>(r)];
    const size_t end = text.find('\n');
    if (text.substr(0, end) != host)
      own = "they are on several hosts";
    else if (r != group.rank() && !reaches(index, text.substr(end + 1)))
      own = str("GPU ", bus_id, " does not reach the memory of GPU ", text.substr(end + 1));
  }
  for (const std::string& theirs : group.gather(own))
    if (!theirs.empty()) return theirs;
  return "";
}

std::unique_ptr<Link> link(RankGroup& group, StreamOf stream) {
  return std::make_unique<PeerLink>(group, std::move(stream));
}

}  // namespace ebb::cuda::peers
