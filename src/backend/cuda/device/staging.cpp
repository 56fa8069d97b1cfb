#include "backend/cuda/device/staging.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device/error.h"
#include "backend/cuda/device/thread_state.h"
#include "core/chunks.h"

namespace ebb::cuda {

// A slot that one thread writes and copies from.
class Staging::Taken {
 public:
  explicit Taken(Staging& s) : s_(s) {
    const std::scoped_lock lock(s.mutex_);
    require(!s.free_.empty(), "cuda: more threads copy than there are staging buffers (", slots,
            ")");
    index_ = s.free_.front();
    s.free_.erase(s.free_.begin());
  }
  ~Taken() {
    const std::scoped_lock lock(s_.mutex_);
    s_.free_.push_back(index_);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  size_t index() const { return index_; }

 private:
  Staging& s_;
  size_t index_ = 0;
};

char* Staging::pinned() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, slot_bytes * slots, cudaHostAllocDefault), "allocating host memory");
  return static_cast<char*>(memory);
}

// What throws from here on finds the memory and the events that there are released.
Staging::Staging(int device) : Staging(device, pinned()) {
  for (cudaEvent_t& e : used_)
    check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "making an event");
  for (size_t i = 0; i < slots; ++i) free_.push_back(i);
}

Staging::~Staging() {
  for (const cudaEvent_t e : used_)
    if (e) cudaEventDestroy(e);
  cudaFreeHost(memory_);
}

void Staging::fetch(std::span<const Device::Copied> results, cudaStream_t stream,
                    const std::function<void()>& wait) {
  constexpr size_t largest_small = 4096;  // bytes; above, a copy's own wait counts for little
  const Taken taken(*this);
  char* const pinned = memory_ + taken.index() * slot_bytes;
  check(cudaEventSynchronize(used_[taken.index()]), "copying from the device");
  struct Small {
    void* to;
    const char* at;
    size_t bytes;
  };
  std::vector<Small> small;
  size_t end = 0;
  for (const auto& [from, to] : results) {
    require(from.type() == to.type(), "copy: types differ (", from.type(), ", ", to.type(), ")");
    const auto bytes = static_cast<size_t>(from.bytes());
    if (bytes == 0) continue;
    void* target = to.raw();
    if (bytes <= largest_small && end + bytes <= slot_bytes) {
      small.push_back({target, pinned + end, bytes});
      target = pinned + end;
      end += bytes;
    }
    check(cudaMemcpyAsync(target, from.raw(), bytes, cudaMemcpyDeviceToHost, stream),
          "copying from the device");
  }
  wait();
  for (const Small& s : small) std::memcpy(s.to, s.at, s.bytes);
}

void Staging::put(char* to, int64_t at, size_t count, const ReadBytes& read, cudaStream_t stream) {
  const OnDevice here(device_);  // a thread that reads would begin to use the first one
  const Taken taken(*this);
  char* const pinned = memory_ + taken.index() * slot_bytes;
  const cudaEvent_t used = used_[taken.index()];
  check(cudaEventSynchronize(used), "copying to the device");
  read(at, {reinterpret_cast<uint8_t*>(pinned), count});
  check(cudaMemcpyAsync(to + at, pinned, count, cudaMemcpyHostToDevice, stream),
        "copying to the device");
  check(cudaEventRecord(used, stream), "copying to the device");
}

// One thread: what is copied in a training step is small, and other threads load the next batch.
void Staging::copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const ReadBytes read = [from](int64_t at, std::span<uint8_t> out) {
    std::memcpy(out.data(), static_cast<const char*>(from) + at, out.size());
  };
  for (size_t at = 0; at < bytes; at += slot_bytes)
    put(static_cast<char*>(to), static_cast<int64_t>(at), std::min(slot_bytes, bytes - at), read,
        stream);
}

void Staging::fill(void* to, int64_t bytes, const ReadBytes& read, cudaStream_t stream) {
  in_chunks(bytes, static_cast<int64_t>(slot_bytes), [&](int64_t at, int64_t count) {
    put(static_cast<char*>(to), at, static_cast<size_t>(count), read, stream);
  });
}

}  // namespace ebb::cuda
