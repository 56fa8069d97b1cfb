#include "runtime/context.h"

#include <vector>

#include "base/error.h"
#include "base/names.h"

#define X(name)                                                 \
  namespace ebb::backend::name {                                \
  std::shared_ptr<ebb::Device> open(const ebb::DeviceOptions&); \
  }
#include "ebb/gen/backends.inc"
#undef X

namespace ebb {
namespace {

// Null where there is no such device.
std::shared_ptr<Device> open_if_there(std::shared_ptr<Device> (*open)(const DeviceOptions&),
                                      const DeviceOptions& options) {
  try {
    return open(options);
  } catch (const Error&) {
    return nullptr;
  }
}

Context open_best(const DeviceOptions& options) {
#define X(name)                         \
  if (std::string_view(#name) != "cpu") \
    if (auto device = open_if_there(backend::name::open, options)) return {device};
#include "ebb/gen/backends.inc"
#undef X
  return {backend::cpu::open(options)};
}

}  // namespace

Context open_context(std::string_view name, const DeviceOptions& options) {
  const std::string text = small_letters(name);
  if (const size_t colon = text.find(':'); colon != std::string::npos) {
    DeviceOptions described = options;
    described.chip = text.substr(colon + 1);
    require(text.starts_with("cuda:") && !described.chip.empty(),
            "device: behind a colon stands the name of a GPU that is not here, as in cuda:h200  ",
            name);
    return open_context(text.substr(0, colon), described);
  }
  const std::string& backend = text;
  if (backend == "auto") return open_best(options);
  std::vector<std::string> known = {"auto"};
#define X(name)                                                \
  if (backend == #name) return {backend::name::open(options)}; \
  known.emplace_back(#name);
#include "ebb/gen/backends.inc"
#undef X
  require(backend != "cuda", "device: this program was built without CUDA (there is ", known[1],
          ")");
  fail_unknown("device: unknown name", backend, known);
}

}  // namespace ebb
