#include "torch/devices.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace ebb::torch {
namespace {

// Torch's codes, asked for once.
struct Codes {
  std::array<std::pair<DType, int32_t>, 3> dtypes = {{{DType::f32, shim().dtype_f32()},
                                                      {DType::bf16, shim().dtype_bf16()},
                                                      {DType::f16, shim().dtype_f16()}}};
  int32_t cpu = shim().device_type_cpu(), cuda = shim().device_type_cuda();
};

const Codes& codes() {
  static const Codes c;
  return c;
}

// Of the driver, which torch has loaded: its streams are the runtime's. Null: there is none.
using IsCapturing = int (*)(void* stream, int* status);
IsCapturing is_capturing() {
  static const auto found = [] {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver ? reinterpret_cast<IsCapturing>(dlsym(driver, "cuStreamIsCapturing")) : nullptr;
  }();
  return found;
}

}  // namespace

TorchDevice TorchDevice::of(TensorHandle t) {
  TorchDevice d;
  check(shim().get_device_type(t, &d.type), "reading a tensor's device");
  check(shim().get_device_index(t, &d.index), "reading a tensor's device");
  return d;
}

std::string TorchDevice::text() const {
  if (type == codes().cpu) return "cpu";
  return type == codes().cuda ? str("cuda:", index) : str("device of type ", type);
}

void* TorchDevice::stream() const {
  void* out = nullptr;
  if (type == codes().cuda) check(shim().current_cuda_stream(index, &out), "asking for the stream");
  return out;
}

bool TorchDevice::records(void* stream) const {
  // The default stream is never recorded, and the driver would be asked for that of another device,
  // the thread's current one.
  if (type != codes().cuda || stream == nullptr) return false;
  if (is_capturing() == nullptr) return true;
  int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return is_capturing()(stream, &status) != 0 || status != 0;
}

std::optional<DType> dtype_of_code(int32_t code) {
  for (const auto& [dtype, torch_code] : codes().dtypes)
    if (torch_code == code) return dtype;
  return {};
}

int32_t code_of(DType t) {
  for (const auto& [dtype, torch_code] : codes().dtypes)
    if (dtype == t) return torch_code;
  fail("ebb_kernels: results of ", t, " are not given to torch");
}

functions::Library& library_of(const TorchDevice& device) {
  struct Slot {
    std::mutex making;
    std::unique_ptr<functions::Library> library;
    std::atomic<functions::Library*> made = nullptr;
  };
  static std::array<Slot, 65> slots;  // the CPU, then GPUs by their indices
  const bool cpu = device.type == codes().cpu;
  if (!cpu && (device.type != codes().cuda || shim().current_cuda_stream == nullptr))
    fail("ebb_kernels: runs on cpu and cuda (got ", device.text(), ")");
  const size_t at = cpu ? 0 : static_cast<size_t>(device.index) + 1;
  if (at >= slots.size())
    fail("ebb_kernels: no more than ", slots.size() - 1, " GPUs (got ", device.text(), ")");
  Slot& slot = slots[at];
  if (functions::Library* const made = slot.made.load(std::memory_order_acquire)) return *made;
  // no std::call_once, which an exception must not cross where the unwinder is linked in (raise.h)
  const std::lock_guard lock(slot.making);
  if (!slot.library) {
    slot.library = std::make_unique<functions::Library>(
        open_context(cpu ? "cpu" : "cuda", {.index = cpu ? 0 : device.index}));
    slot.made.store(slot.library.get(), std::memory_order_release);
  }
  return *slot.library;
}

}  // namespace ebb::torch
