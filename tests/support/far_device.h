// FarDevice: the processor as a mock of a device with memory of its own, a limit to it, and
// captured graphs, for tests of the runtime.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "core/out_of_memory.h"
#include "runtime/context.h"

namespace ebb::testing {

class FarDevice final : public Device {
 public:
  explicit FarDevice(int64_t memory = int64_t{1} << 40) : free_(memory) {}

  std::string_view backend() const override { return kernels; }
  std::string description() const override { return "a far device"; }
  bool on_host() const override { return false; }
  bool fast_in(DType dtype) const override { return dtype == fast || dtype == DType::f32; }
  int64_t free_memory() const override {
    require(lost.empty(), lost);
    ++asked;
    return free_;
  }
  DriverMemory driver_memory() const override { return driver; }
  int64_t rounded(int64_t bytes) const override { return (bytes + unit - 1) / unit * unit; }
  std::shared_ptr<Buffer> allocate(int64_t bytes) override {
    require(lost.empty(), lost);
    if (bytes > free_)
      throw OutOfMemory(
          str("far: out of memory (", bytes, " bytes needed at once, ", free_, " free)"));
    least = std::min(least, free_ - bytes);
    return std::make_shared<Memory>(*this, bytes);
  }
  void copy(const Tensor& from, const Tensor& to) override {
    require(from.type() == to.type(), "copy: types differ");
    if (from.bytes() > 0) std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    if (from.buffer()->on_host()) sent += from.bytes(), ++transfers;
    if (to.buffer()->on_host()) synchronize();
  }
  void fill(const Tensor& to, const ReadBytes& read) override {
    Device::fill(to, read);
    sent += to.bytes();
  }
  void synchronize() override {
    if (!fault.empty()) fail(std::exchange(fault, ""));
    if (!short_of.empty()) throw OutOfMemory(std::exchange(short_of, ""));
  }
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    ++captures;
    return std::make_unique<Taken>(*this, work);
  }
  // Work on side streams runs as late as possible: when something waits for it, or not at all.
  bool has_side_stream() const override { return late; }
  std::unique_ptr<Event> on_side_stream(SideStream which,
                                        const std::function<void()>& work) override {
    Queue& q = queues_[static_cast<size_t>(which)];
    q.waiting.push_back(work);
    return std::make_unique<QueueEvent>(q, q.begun + q.waiting.size());
  }
  void wait(const Event& event) override {
    const auto& end = static_cast<const QueueEvent&>(event);
    while (end.queue.begun < end.count) {
      const std::function<void()> work = std::move(end.queue.waiting.front());
      end.queue.waiting.pop_front();
      ++end.queue.begun;
      work();
    }
  }

  // The device is one of several; null: it computes alone.
  void join_as(std::shared_ptr<Communicator> c) { communicator_ = std::move(c); }

  std::string kernels = "cpu";     // whose kernels it uses
  DType fast = DType::f32;         // beside f32
  DriverMemory driver = {};        // what it says of that
  int64_t unit = 1;                // that allocations are rounded to
  bool late = false;               // it has a side stream
  std::atomic<int64_t> sent = 0;   // bytes copied from the host
  std::atomic<int> transfers = 0;  // copies from the host
  int captures = 0, launches = 0;
  mutable int asked = 0;             // for free memory
  std::string fault;                 // what the next wait fails with, once
  std::string short_of;              // the same, for want of memory
  std::string lost;                  // what all that concerns its memory fails with
  int64_t least = int64_t{1} << 62;  // bytes that were free at any time

 private:
  class Memory final : public Buffer {
   public:
    Memory(FarDevice& device, int64_t bytes) : device_(device), held_(host_buffer(bytes)) {
      device_.free_ -= bytes;
    }
    ~Memory() override { device_.free_ += held_->bytes(); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    void* data() const override { return held_->data(); }
    int64_t bytes() const override { return held_->bytes(); }
    bool on_host() const override { return false; }

   private:
    FarDevice& device_;
    std::shared_ptr<Buffer> held_;
  };
  struct Queue {
    std::deque<std::function<void()>> waiting;
    size_t begun = 0;
  };
  struct QueueEvent final : Event {
    QueueEvent(Queue& of, size_t n) : queue(of), count(n) {}
    double seconds_since(const Event&) const override { return 0; }
    Queue& queue;
    size_t count;  // work items of the queue that are finished by then
  };
  class Taken final : public CapturedGraph {
   public:
    Taken(FarDevice& device, std::function<void()> work)
        : device_(device), work_(std::move(work)) {}
    void run() override {
      ++device_.launches;
      work_();
    }

   private:
    FarDevice& device_;
    std::function<void()> work_;
  };

  int64_t free_;
  std::array<Queue, side_streams> queues_;
};

}  // namespace ebb::testing
