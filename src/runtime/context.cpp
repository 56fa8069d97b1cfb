#include "runtime/context.h"

#include <vector>

#include "base/error.h"
#include "base/names.h"

#define X(name)                                                 \
  namespace ebb::backend::name {                                \
  std::shared_ptr<ebb::Device> open(const ebb::DeviceOptions&); \
  int64_t count();                                              \
  }
#include "ebb/gen/backends.inc"
#undef X

namespace ebb {
namespace {

struct Backend {
  std::string_view name;
  std::shared_ptr<Device> (*open)(const DeviceOptions&);
  int64_t (*count)();
};

const std::vector<Backend>& backends() {
  static const std::vector<Backend> list = {
#define X(name) {#name, backend::name::open, backend::name::count},
#include "ebb/gen/backends.inc"
#undef X
  };
  return list;
}

const Backend* find_backend(std::string_view name) {
  for (const Backend& b : backends())
    if (b.name == name) return &b;
  return nullptr;
}

// Null where there is no such device.
std::shared_ptr<Device> open_if_there(const Backend& backend, const DeviceOptions& options) {
  try {
    return backend.open(options);
  } catch (const Error&) {
    return nullptr;
  }
}

// The CPU is what is left, in a build that has it.
Context open_best(const DeviceOptions& options) {
  for (const Backend& b : backends())
    if (b.name != "cpu")
      if (auto device = open_if_there(b, options)) return {device};
  return open_context("cpu", options);
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
  if (text == "auto") return open_best(options);
  if (const Backend* b = find_backend(text)) return {b->open(options)};
  std::vector<std::string> known = {"auto"};
  for (const Backend& b : backends()) known.emplace_back(b.name);
  require(text != "cuda", "device: this program was built without CUDA (there is ", known.back(),
          ")");
  require(text != "cpu", "device: this library computes on GPUs alone, it has no kernels for cpu");
  fail_unknown("device: unknown name", text, known);
}

int64_t count_devices(std::string_view backend) {
  const Backend* b = find_backend(backend);
  return b ? b->count() : 0;
}

}  // namespace ebb
