#include "backends.h"

#include <map>

#include "base/error.h"
#include "ops/table.h"

namespace ebb::test {
namespace {

struct Accelerator {
  std::shared_ptr<Device> device;
  std::string missing;
};

// One for the whole program, and never closed: the driver may be gone when statics are destroyed.
const Accelerator& accelerator(const std::string& backend) {
  static auto& opened = *new std::map<std::string, Accelerator>;
  const auto it = opened.find(backend);
  if (it != opened.end()) return it->second;
  Accelerator a;
  try {
    a.device = open_context(backend).device;
  } catch (const Error& e) {
    a.missing = e.what();
  }
  return opened.emplace(backend, std::move(a)).first->second;
}

// An error that comes back is the device's; one that an input caused comes once.
bool broken(Device& device) {
  for (int i = 0; i < 2; ++i) {
    try {
      device.synchronize();
      return false;
    } catch (const Error&) {
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> backends() {
  std::vector<std::string> out = {"cpu"};
  if (!all_kernels("cuda").empty()) out.emplace_back("cuda");
  return out;
}

std::vector<std::string> only(const std::string& backend) {
  std::vector<std::string> out = backends();
  std::erase_if(out, [&](const std::string& b) { return b != backend; });
  return out;
}

Opened open_backend(const std::string& backend, int64_t threads) {
  if (backend == "cpu") return {open_context("cpu", {.threads = threads}), ""};
  const Accelerator& a = accelerator(backend);
  if (!a.missing.empty()) return {{}, a.missing};
  if (broken(*a.device)) return {{}, "device: broken by an earlier test"};
  return {{a.device}, ""};
}

}  // namespace ebb::test
