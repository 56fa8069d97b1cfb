// Device: where tensors live and kernels run. The narrow contract a backend fulfils.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/communicator.h"
#include "core/tensor.h"

namespace ebb {

// A captured graph of device work, cheap to launch again.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void run() = 0;  // launches it on the main stream
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Seconds between an earlier event of the same device and this one; waits for this one.
  virtual double seconds_since(const Event& earlier) const = 0;
};

// Work beside the main stream's: each runs its own in order.
enum class SideStream : uint8_t { compute, collectives };
constexpr size_t side_streams = 2;

// Puts bytes [at, at + out.size()) of something into host memory. Called from several threads.
using ReadBytes = std::function<void(int64_t at, std::span<uint8_t> out)>;

// What the hardware does at most in a second, nominally.
struct Peaks {
  double bytes = 20e9;                         // read and written
  double flops_f32 = 200e9, flops_16 = 200e9;  // of products in f32, and of 16 bits added up in f32
};

// What a device's memory holds for this process beyond allocate(): a context, code, graphs, and
// what allocations are rounded by. Bytes.
struct DriverMemory {
  int64_t first = 0;  // when the device was opened: limits count this, as it is the same each time
  int64_t now = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view backend() const = 0;  // "cpu", "cuda": the key of its kernel table
  virtual std::string description() const = 0;   // a line for people: chip, cores, memory
  virtual bool on_host() const { return true; }  // its memory is the host's
  virtual bool fast_in(DType dtype) const = 0;   // there is hardware for matmuls
  virtual Peaks peaks() const { return {}; }
  // Nominal flops per element that take as long as one more pass over memory for it.
  virtual double flops_per_pass() const { return 24; }
  // Subexpressions that are constant along a row are hoisted out of the loop over it.
  virtual bool hoists_row_scalars() const { return false; }
  virtual int64_t free_memory() const = 0;                   // bytes
  virtual DriverMemory driver_memory() const { return {}; }  // none on the host
  // What allocate() takes of the memory for so many bytes.
  virtual int64_t rounded(int64_t bytes) const { return bytes; }
  // At a multiple of 64 bytes. Throws Error when out of memory.
  virtual std::shared_ptr<Buffer> allocate(int64_t bytes) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;  // same type; either side any device
  struct Copied {
    Tensor from, to;
  };
  // Copies the results of a run to the host, and waits for all of them together.
  virtual void fetch(std::span<const Copied> results);
  // Fills `to`, in this device's memory, with what `read` gives of as many bytes. All of it is read
  // when this returns, but the device may not have it yet. Throws what `read` throws.
  virtual void fill(const Tensor& to, const ReadBytes& read);
  // Runs `work` with this as the device of the calling thread. A thread other than the one that
  // opened it, or one that has opened several, uses a device inside of it.
  virtual void run_current(const std::function<void()>& work) { work(); }
  // What `work` enqueues goes to a stream of the caller's, of this device and of its API's type.
  virtual void run_on(void* stream, const std::function<void()>& work) {
    static_cast<void>(stream);
    work();
  }
  // Runs `work`, which copies to this device, beside what the device does, and waits for it. From
  // any thread.
  virtual void run_beside(const std::function<void()>& work) { work(); }
  // Runs what may load code, while any thread captures a stream.
  virtual void run_loading(const std::function<void()>& work) { work(); }
  virtual void synchronize() = 0;  // waits for all that was enqueued; throws Error if any failed
  // Captures `work`, which only enqueues kernels and copies on the device, without running it.
  // Null: the device has no graph capture, and `work` was not called.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) {
    static_cast<void>(work);
    return nullptr;
  }
  virtual std::unique_ptr<Event> record_event();  // on the stream that work goes to

  // True: work can run concurrently, see on_side_stream().
  virtual bool has_side_stream() const { return false; }
  // Enqueues `work` on a side stream. It starts after what was enqueued on the main stream so far,
  // in order with earlier work there, and runs concurrently with what is enqueued next elsewhere.
  // The event is its end, for wait().
  virtual std::unique_ptr<Event> on_side_stream(SideStream which,
                                                const std::function<void()>& work) {
    static_cast<void>(which);
    work();
    return record_event();
  }
  // What is enqueued next, where this is called, starts after `event`.
  virtual void wait(const Event& event) { static_cast<void>(event); }

  // Makes the device one of several that compute together: from then on there is a communicator().
  // All ranks call it. Throws Error, saying what is missing.
  virtual void join(RankGroup& group);
  // The same for plans that are looked at: collectives of so many ranks are compiled, and none
  // can run.
  void describe_ranks(int64_t ranks);
  // Null: the device computes alone.
  Communicator* communicator() const { return communicator_.get(); }

 protected:
  std::shared_ptr<Communicator> communicator_;
};

struct DeviceOptions {
  int64_t threads = 0;  // CPU threads; 0: all that this process may use
  std::string chip;     // of a GPU that is only described: graphs are lowered for it; "": one here
  int index = 0;        // of the GPU among those here
};

}  // namespace ebb
