// Device: where tensors live and kernels run. The narrow contract a backend fulfils.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace ebb {

// Work that a device took down once, to run it again at little cost.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void run() = 0;  // enqueues it
};

// A moment in a device's work.
class Event {
 public:
  virtual ~Event() = default;
  // Seconds of work between an earlier mark of the same device and this one; waits for this one.
  virtual double seconds_since(const Event& earlier) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view backend() const = 0;  // "cpu", "cuda": which kernel table serves it
  virtual std::string description() const = 0;   // a line for people: chip, cores, memory
  virtual bool on_host() const { return true; }  // its memory is the host's
  virtual bool fast_in(DType dtype) const = 0;   // matrix products have hardware for it
  // Nominal operations on an element that take as long as reading or writing it once more.
  virtual double flops_per_pass() const { return 24; }
  // What an expression makes of inputs that repeat along a row is computed once for many elements.
  virtual bool hoists_row_scalars() const { return false; }
  virtual int64_t free_memory() const = 0;                      // bytes
  virtual std::shared_ptr<Buffer> allocate(int64_t bytes) = 0;  // throws Error when out of memory
  virtual void copy(const Tensor& from, const Tensor& to) = 0;  // same type; either side any device
  virtual void synchronize() = 0;  // waits for all that was enqueued; throws Error if any failed
  // Calls `work`, which only enqueues kernels and copies on the device, and takes it down without
  // running it. Null: this device has no recordings, and `work` was not called.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) {
    static_cast<void>(work);
    return nullptr;
  }
  virtual std::unique_ptr<Event> record_event();  // where its work has come to

  // True: work can run beside other work, see aside().
  virtual bool has_side_stream() const { return false; }
  // Enqueues `work` to start after what was enqueued so far and to run beside what is enqueued
  // next, in order with other work aside. The mark is its end, for wait().
  virtual std::unique_ptr<Event> on_side_stream(const std::function<void()>& work) {
    work();
    return record_event();
  }
  // What is enqueued next starts after `moment`.
  virtual void wait(const Event& event) { static_cast<void>(event); }
};

struct DeviceOptions {
  int64_t threads = 0;  // CPU threads; 0: all that this process may use
};

}  // namespace ebb
