#include "backend/cuda/device/card_memory.h"

#include <dlfcn.h>

#include <type_traits>

namespace ebb::cuda {
namespace {

// nvmlMemory_t of NVML's API reference.
struct CardMemory {
  unsigned long long total = 0, free = 0, taken = 0;
};

// Its functions return 0 where they succeed.
class Nvml {
 public:
  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    int (*begin)() = nullptr;
    find(begin, "nvmlInit_v2");
    find(by_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2");
    find(memory_of_, "nvmlDeviceGetMemoryInfo");
    there_ = begin && by_bus_id_ && memory_of_ && begin() == 0;
  }

  std::optional<int64_t> taken(const std::string& bus_id) const {
    void* card = nullptr;
    CardMemory memory;
    if (!there_ || by_bus_id_(bus_id.c_str(), &card) != 0 || memory_of_(card, &memory) != 0)
      return {};
    return static_cast<int64_t>(memory.taken);
  }

 private:
  int (*by_bus_id_)(const char*, void**) = nullptr;
  int (*memory_of_)(void*, CardMemory*) = nullptr;
  bool there_ = false;
};

}  // namespace

std::optional<int64_t> taken_of_card(const std::string& bus_id) {
  static const Nvml nvml;
  return nvml.taken(bus_id);
}

}  // namespace ebb::cuda
